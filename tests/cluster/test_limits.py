"""What a follower has too little of: producers wait for it, but not for ever; journals are kept for it, but not for
ever either."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, Message, Producer

from broker_process import wait_until
from cairnmq.wire.messages import DescribeJournalsRequest, DescribeJournalsResponse
from cluster.brokers import FAILURES, SYNC_SECONDS, WIRE_SECONDS, Cluster
from cluster.lost_disks import installs
from crash.ledger import Place
from damage.wire_client import WireClient

RECORD = 10_000
CAP = 1 << 18  # of a splitter's backlog
PIECE = 4 << 20  # what a follower asks for at once
LAG_MS = 8_000
SEGMENT = 1 << 16
RETENTION = 1 << 20

pytestmark = pytest.mark.long


class Writer:
    """Delivers all that it is given, with acks=all."""

    def __init__(self, cluster: Cluster, place: Place) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "batch.size": 4 * RECORD}
        )
        self._place = place
        self.delivered = 0
        self.failed: list[KafkaError] = []

    def put(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._place.topic, os.urandom(RECORD), partition=self._place.partition, on_delivery=self._done
            )
        self._producer.poll(0)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(error)

    def flush(self) -> None:
        assert self._producer.flush(SYNC_SECONDS) == 0 and not self.failed, self.failed

    def poll(self) -> None:
        self._producer.poll(0)


def led_by(cluster: Cluster, node: int) -> Place:
    """A partition that this broker leads."""
    done = cluster.cairn("topic", "create", "t", "-p", "6", "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    cluster.wait_in_sync()
    return next(place for place, row in cluster.told().items() if row.leader_id == node)


def led_journals(cluster: Cluster, node: int) -> Iterator[DescribeJournalsResponse.LedJournal]:
    with suppress(*FAILURES), WireClient(f"127.0.0.1:{cluster.brokers[node].port}", WIRE_SECONDS) as client:
        answer = client.ask(DescribeJournalsRequest(), DescribeJournalsResponse)
        yield from (row.led_here for row in answer.journals if row.led_here is not None)


def replica(cluster: Cluster, leader: int, node: int) -> DescribeJournalsResponse.ReplicaEnds | None:
    """The one of a broker that is furthest behind in splitting, as the leader of its journals knows it."""
    rows = [one for led in led_journals(cluster, leader) for one in led.replicas if one.node_id == node]
    return max(rows, key=lambda one: one.unsplit_percent, default=None)


def configure(cluster: Cluster, node: int, *settings: str) -> None:
    done = cluster.cairn("config", "set", "--broker", str(node), *settings, "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr


def test_producers_wait_for_a_slow_follower_until_it_leaves(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(settings={"cairn.journals.led": "1", "replica.lag.time.max.ms": str(LAG_MS)})
    place = led_by(cluster, 1)
    configure(cluster, 3, "cairn.split.enable=false", f"cairn.unsplit.bytes.max={CAP}")
    writer = Writer(cluster, place)

    def slowed() -> bool:
        writer.put(2)
        row = replica(cluster, 1, 3)
        return row is not None and row.slows_producers

    wait_until(slowed, SYNC_SECONDS, "a follower that slows producers down")
    row = replica(cluster, 1, 3)
    assert row is not None and row.unsplit_percent >= 90 and row.free_bytes > 0

    def left() -> bool:
        writer.poll()
        return 3 not in cluster.told()[place].isr_nodes

    writer.put(50)  # somebody has to wait: for a follower that holds up nobody there is time
    wait_until(left, SYNC_SECONDS, "the slow follower to leave the ISR")
    writer.flush()
    writer.put(2 * PIECE // RECORD)
    writer.flush()
    row = replica(cluster, 1, 3)
    assert row is not None and not row.is_in_sync and row.unsplit_bytes < CAP + PIECE + 10 * RECORD
    configure(cluster, 3, "cairn.split.enable=true")
    cluster.wait_in_sync()
    writer.put(5)
    writer.flush()
    cluster.stop()
    cluster.verify()


def journal_bytes(cluster: Cluster, node: int) -> int:
    """Of all journals of a broker, as they lie on its disk."""
    total = 0
    for file in (cluster.brokers[node].data / "journal").glob("*/*.jnl"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def test_journals_are_kept_for_a_broker_that_is_away_and_not_for_ever(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(
        settings={
            "cairn.journals.led": "1",
            "cairn.journal.segment.bytes": str(SEGMENT),
            "cairn.journal.retention.bytes": str(RETENTION),
            "cairn.checkpoint.interval.ms": "200",
        }
    )
    place = led_by(cluster, 1)
    writer = Writer(cluster, place)
    least = RETENTION // 2
    cluster.kill(3)
    writer.put(least // RECORD)
    writer.flush()
    assert journal_bytes(cluster, 1) >= least - RECORD, "kept for the broker that is away"
    cluster.revive(3)
    cluster.wait_in_sync()
    wait_until(
        lambda: all(journal_bytes(cluster, node) < least // 2 for node in (1, 2, 3)),
        SYNC_SECONDS,
        "journals that nobody needs any more to be removed",
    )
    cluster.kill(3)
    writer.put(4 * RETENTION // RECORD)
    writer.flush()
    wait_until(
        lambda: journal_bytes(cluster, 1) < 2 * RETENTION, SYNC_SECONDS, "no more to be kept than the limit says"
    )
    cluster.revive(3)
    cluster.wait_in_sync()
    assert installs(cluster, 3) > 0, "it takes over what the journals do not have any more"
    writer.put(5)
    writer.flush()
    cluster.stop()
    cluster.verify()
