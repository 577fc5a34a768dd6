"""Transactions of real clients over three brokers that are killed, paused and cut off (tests/chaos/exactly_once.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from confluent_kafka.admin import NewTopic

from chaos.exactly_once import GOES_ON_SECONDS, PARTITIONS, SETTINGS, Play
from cluster.brokers import Cluster
from cluster.faults import Faults
from interop.clients.librdkafka import answer


class AnyBroker(Faults):
    """Whoever leads: coordinators, partitions and groups are on all of them."""

    def leader(self) -> int:
        return self.some()


class ClusterStage(Play):
    """Three brokers. Every record is on all, and two have it before it is acknowledged."""

    def __init__(self, kind: str, directory: Path, seed: int, tally: Counter[str]) -> None:
        rng = Random(seed)
        self.cluster = Cluster(directory, settings=SETTINGS)
        super().__init__(f"{kind} in a cluster", self.cluster.bootstrap, rng, tally)
        self.faults = AnyBroker(self.cluster, rng, tally)

    @contextmanager
    def served(self) -> Iterator[None]:
        with self.cluster.up():
            yield
            self.cluster.wait_in_sync()
            self.cluster.stop()
            self.cluster.verify()
            self.tally["verify runs"] += 1

    def make_topic(self, name: str) -> None:
        new = NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        answer(self.admin.admin.create_topics([new], request_timeout=GOES_ON_SECONDS)[name])
        self.topics.append(name)
        self.cluster.wait_in_sync()

    def attack(self) -> None:
        self.faults.any()
