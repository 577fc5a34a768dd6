"""Transactions over three real brokers, whose coordinators, partitions and groups are anywhere, under kills."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import wait_until
from cairnmq.broker.cluster.departures import TOLD_MS
from cairnmq.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse
from cluster.brokers import WIRE_SECONDS, Cluster
from cluster.transactors import PARTITIONS, PATIENCE_SECONDS, SOURCE, TOPIC, Transactor, judge
from damage.wire_client import WireClient

WRITERS = 4
KILLS = 4
MORE = 8
GOES_ON_SECONDS = 100.0  # only a failure uses it up


def goes_on(transactors: list[Transactor], more: int = MORE) -> None:
    """Every writer hears of further ends."""
    aims = [(one, len(one.told) + more) for one in transactors]
    try:
        wait_until(
            lambda: all(len(one.told) >= aim for one, aim in aims), GOES_ON_SECONDS, "further ends of transactions"
        )
    except AssertionError as problem:
        raise AssertionError(f"{problem}: {[one.state for one in transactors]}") from None


def make_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (TOPIC, SOURCE)]
    for future in admin.create_topics(new, request_timeout=60.0).values():
        future.result(60)
    cluster.wait_in_sync()


def begun(cluster: Cluster, seed: int) -> list[Transactor]:
    make_topics(cluster)
    transactors = [Transactor(cluster, f"writer-{n}", seed + n, f"group-{n}") for n in range(WRITERS)]
    for one in transactors:
        one.start()
    goes_on(transactors)
    return transactors


def test_killed_brokers_leave_transactions_whole(make_cluster: Callable[..., Cluster]) -> None:
    seed = time.time_ns() // 1_000_000
    print(f"seed {seed}")
    cluster, random = make_cluster(), Random(seed)
    transactors = begun(cluster, seed)
    for _ in range(KILLS):
        node = random.choice(list(cluster.brokers))
        cluster.kill(node)
        time.sleep(random.uniform(0.0, 3.0))
        cluster.revive(node)
        goes_on(transactors, 3)
    for one in transactors:
        one.stop()
    cluster.wait_in_sync()
    tally = judge(cluster, transactors)
    assert tally["commits"] and tally["aborts"], tally
    print(dict(tally))


def coordinator(cluster: Cluster, key: str, *, of_group: bool) -> int:
    """Once there is one."""
    found = -1

    def known() -> bool:
        nonlocal found
        with WireClient(f"127.0.0.1:{cluster.brokers[cluster.running[0]].port}", WIRE_SECONDS) as client:
            question = FindCoordinatorRequest(key_type=0 if of_group else 1, coordinator_keys=[key])
            (row,) = client.ask(question, FindCoordinatorResponse).coordinators
        found = row.node_id
        return not row.error_code

    wait_until(known, GOES_ON_SECONDS, f"a coordinator of {key}")
    return found


class Committer:
    """A producer in whose transactions offsets are committed for a group that another broker coordinates."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.name = f"committer-{number}"
        own = coordinator(cluster, self.name, of_group=False)
        groups = (f"group-{number}-{each}" for each in count())
        self.group = next(each for each in groups if coordinator(cluster, each, of_group=True) != own)
        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": self.name, "log_level": 0}
        self.producer = Producer(settings)
        self.reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": self.group, "log_level": 0})
        self.producer.init_transactions(PATIENCE_SECONDS)

    def transact(self, offset: int | None = None) -> None:
        self.producer.begin_transaction()
        for partition in range(PARTITIONS):
            self.producer.produce(TOPIC, self.name, partition=partition)
        if offset is not None:
            metadata = self.reader.consumer_group_metadata()
            place = TopicPartition(SOURCE, 0, offset)
            self.producer.send_offsets_to_transaction([place], metadata, PATIENCE_SECONDS)
        self.producer.commit_transaction(PATIENCE_SECONDS)

    def survives(self) -> bool:
        """The group's coordinator dies, and the client hears of that before it commits offsets the next time. None of
        its other connections breaks, so nothing but an answer wakes it."""
        self.transact(1)
        node = coordinator(self.cluster, self.group, of_group=True)
        self.cluster.kill(node)
        killed = time.monotonic()
        try:
            wait_until(
                lambda: coordinator(self.cluster, self.group, of_group=True) != node, GOES_ON_SECONDS, "another one"
            )
            self.transact()
            thread = threading.Thread(target=self.transact, args=[2], daemon=True)
            thread.start()
            is_early = time.monotonic() - killed < TOLD_MS / 2000
            thread.join(2 * PATIENCE_SECONDS)
            if thread.is_alive():
                assert not is_early, "send_offsets_to_transaction does not come to an end"
                return False  # this machine was so slow that the broker was not named any more
            (place,) = self.reader.committed([TopicPartition(SOURCE, 0)], PATIENCE_SECONDS)
            assert place.offset == 2
            return True
        finally:
            self.cluster.revive(node)
            self.cluster.wait_in_sync()


def test_the_groups_coordinator_dies_between_two_transactions(make_cluster: Callable[..., Cluster]) -> None:
    """librdkafka waits for ever for one that metadata name no longer (docs/delivery.md)."""
    cluster = make_cluster()
    make_topics(cluster)
    assert any(Committer(cluster, number).survives() for number in range(5)), "the machine is too slow"
