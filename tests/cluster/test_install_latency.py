"""Producers go on while a broker takes its replicas over. How long they wait meanwhile is printed and not judged: that
needs a machine on which nothing else runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from broker_process import wait_until
from cluster.brokers import FAILURES, SYNC_SECONDS, Cluster
from cluster.lost_disks import JOURNALS, installs, wipe_both
from crash.ledger import Place

RECORD = 1000
STORED_BYTES = 300 << 20
PER_SECOND = 200
WINDOW_SECONDS = 12.0

pytestmark = pytest.mark.long


class Paced:
    """Records at a steady pace, with acks=all, and how long each answer took."""

    def __init__(self, cluster: Cluster, places: list[Place]) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        self._places = places
        self._ends = threading.Event()
        self._seconds: list[float] = []
        self.failed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due, number = time.monotonic(), 0
        while not self._ends.is_set():
            place = self._places[number % len(self._places)]
            self._producer.produce(
                place.topic, bytes(RECORD), partition=place.partition, on_delivery=self._told(time.monotonic())
            )
            number, due = number + 1, due + 1 / PER_SECOND
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(SYNC_SECONDS)

    def _told(self, sent: float) -> Callable[[Any, Message], None]:
        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._seconds.append(time.monotonic() - sent)
            else:
                self.failed.append(error)

        return told

    def p99_ms(self) -> float:
        """Of all answers since it was asked last."""
        seconds, self._seconds = sorted(self._seconds), []
        return seconds[len(seconds) * 99 // 100] * 1000

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


def is_split(cluster: Cluster) -> bool:
    """No journal holds more than the segment that is written."""
    journals = [each for one in cluster.brokers.values() for each in (one.data / JOURNALS).iterdir() if each.is_dir()]
    return all(len(list(each.glob("*.jnl"))) <= 2 for each in journals)


def is_whole(cluster: Cluster) -> bool:
    """Asked gently: `wait_in_sync` starts a process each time, and they are few cores."""
    time.sleep(0.3)
    with suppress(*FAILURES):
        return not cluster.lacking()
    return False


def test_no_record_fails_while_a_broker_takes_all_over(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(
        settings={
            "cairn.journals.led": "1",
            "cairn.journal.segment.bytes": str(8 << 20),
            "cairn.journal.retention.bytes": "0",
        },
        direct=True,
    )
    done = cluster.cairn("topic", "create", "t", "-p", "12", "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    cluster.wait_in_sync()
    places = [place for place, row in cluster.told().items() if row.leader_id != 3]
    stored = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 20, "batch.size": 1 << 19})
    value = os.urandom(50_000)
    for number in range(STORED_BYTES // len(value)):
        stored.produce("t", value, partition=number % 12)
        while len(stored) > 200:
            stored.poll(0.1)
    assert stored.flush(SYNC_SECONDS) == 0
    wait_until(lambda: is_split(cluster), SYNC_SECONDS, "all of it in queue logs")
    cluster.kill(3)
    wipe_both(cluster.brokers[3].data)
    paced = Paced(cluster, places)
    time.sleep(WINDOW_SECONDS / 2)
    paced.p99_ms()
    time.sleep(WINDOW_SECONDS)
    before = paced.p99_ms()
    began = time.monotonic()
    cluster.revive(3)
    wait_until(lambda: is_whole(cluster), SYNC_SECONDS, "all replicas in sync")
    took = time.monotonic() - began
    meanwhile = paced.p99_ms()
    time.sleep(WINDOW_SECONDS)
    after = paced.p99_ms()
    paced.close()
    assert installs(cluster, 3) >= 3 and not paced.failed
    print(f"p99 {before:.1f} ms before, {meanwhile:.1f} ms in {took:.1f} s of installs, {after:.1f} ms after")
    cluster.stop()
    cluster.verify()
