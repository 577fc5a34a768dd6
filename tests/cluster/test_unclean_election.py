"""Journals whose only in-sync broker is gone wait, until a person gives up what it alone had."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import NewTopic

from broker_process import wait_until
from cluster.brokers import FAILURES, Cluster
from cluster.terminal import answered
from crash.ledger import Place
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient, answer

TOPIC, PARTITIONS, RECORDS = "orders", 3, 20
SECONDS = 120.0  # only a failure uses it up


class Orders:
    """Records of one topic; those of each partition have their own names."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = LibrdkafkaClient(cluster.bootstrap)
        new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "1"})
        answer(self.client.admin.create_topics([new], request_timeout=SECONDS)[TOPIC])

    def write(self, name: str) -> None:
        """acks=all: what returns is acknowledged."""
        records = [
            Sent(value=f"{name} {partition} {number}".encode(), partition=partition)
            for partition in range(PARTITIONS)
            for number in range(RECORDS)
        ]
        self.client.produce(TOPIC, records, idempotent=True)

    def read(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        for got in self.client.read(TOPIC, range(PARTITIONS), 0):
            found[got.partition].append((got.value or b"").decode())
        return found


def expected(*names: str) -> dict[int, list[str]]:
    return {
        partition: [f"{name} {partition} {number}" for name in names for number in range(RECORDS)]
        for partition in range(PARTITIONS)
    }


def leaders(cluster: Cluster, node: int) -> dict[int, int]:
    """Of journals, as a broker knows them; -1: none."""
    try:
        report = cluster.report(node)
    except FAILURES:
        return {}
    return {each.journal: -1 if each.leader is None else each.leader.node_id for each in report.journals}


@pytest.mark.long
def test_a_person_gives_up_what_one_broker_alone_had(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    orders = Orders(cluster)
    cluster.wait_in_sync()
    orders.write("kept")
    last = cluster.leader(Place(TOPIC, 0))
    first, second = (node for node in cluster.brokers if node != last)

    # One broker is left, and takes records that no other has. Then it is gone, and the others come back.
    for node in (first, second):
        cluster.kill(node)
    wait_until(lambda: {*leaders(cluster, last).values()} == {last}, SECONDS, "one broker that leads everything")
    orders.write("lost")
    assert orders.read() == expected("kept", "lost")
    asked = ["cluster", "elect", "--unclean", *map(str, [*leaders(cluster, last)][:1]), "-b", cluster.bootstrap]
    done = cluster.cairn(*asked)
    assert done.returncode == 1 and f"has a leader: broker {last}" in done.stderr, done.stderr
    cluster.kill(last)
    for node in (first, second):
        cluster.revive(node)
    wait_until(lambda: {*leaders(cluster, first).values()} == {-1}, SECONDS, "journals without a leader")
    journals = sorted(leaders(cluster, first))

    # It says what may be lost, and does nothing unless it is told to.
    bootstrap = ["-b", cluster.bootstrap]
    asked = ["cluster", "elect", *(word for number in journals for word in ("--unclean", str(number))), *bootstrap]
    for refused in (cluster.cairn(*asked), answered("n", *asked)):
        assert refused.returncode == 1, refused
        assert f"journal {journals[0]} would be led by one of: brokers {first}, {second}." in refused.stderr
        assert f"Records that only broker {last} has are lost, also acknowledged ones" in refused.stderr
        assert "nothing was changed." in refused.stderr
    assert {*leaders(cluster, first).values()} == {-1}
    done = answered("y", *asked)
    assert done.returncode == 0, done
    assert all(f"journal {number} has a leader" in done.stderr for number in journals), done.stderr

    # Clients go on with what there is, and the broker that comes back has no more than that.
    orders.write("later")
    assert orders.read() == expected("kept", "later")
    cluster.revive(last)
    cluster.wait_in_sync()
    assert orders.read() == expected("kept", "later")
    cluster.stop()
    cluster.verify()
