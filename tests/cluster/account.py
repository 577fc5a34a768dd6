"""What a cluster under test says of itself at the moment of a failure: health, each broker's view, and its log."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from crash.ledger import Place
from damage.wire_client import WireClient

if TYPE_CHECKING:
    from cluster.brokers import Cluster

LOG_LINES = 60
SECONDS = 10.0
LATEST = -1


@contextmanager
def accounted(cluster: Cluster) -> Iterator[None]:
    """An assertion that fails within says all that is known: afterwards the brokers are gone."""
    try:
        yield
    except AssertionError as failure:
        failure.add_note(account(cluster))
        raise


def account(cluster: Cluster) -> str:
    """Never fails itself."""
    said = [f"brokers that run: {cluster.running}", _tried(lambda: cluster.health()[1])]
    for node, broker in cluster.brokers.items():
        said.append(f"broker {node}:")
        if broker.running:
            said.append(_tried(lambda node=node: "\n".join(_own(cluster, node))))  # type: ignore[misc]
        said.append(_tried(lambda broker=broker: broker.log_tail(LOG_LINES)))  # type: ignore[misc]
    return "\n".join(said)


def _tried(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"nothing: {failure!r}"


def _own(cluster: Cluster, node: int) -> Iterator[str]:
    """Who leads what, as this broker knows it; the journals that it leads; the ends that it tells of their queues."""
    rows = cluster.described(node)
    leaders = ", ".join(f"{place.topic}-{place.partition}: {row.leader_id}" for place, row in sorted(rows.items()))
    yield f"leaders: {leaders}"
    report = cluster.report(node)
    for journal in report.journals:
        if journal.led_here is not None:
            led = journal.led_here
            yield (
                f"leads journal {journal.journal} in epoch {journal.epoch}, ready: {led.is_ready}, end {led.end}, "
                f"replicated {led.replicated_end}, durable {led.durable_end}, trouble: {journal.trouble}"
            )
    with WireClient(f"127.0.0.1:{cluster.brokers[node].port}", SECONDS) as client:
        answer = client.ask(_ends(rows), ListOffsetsResponse)
    for topic in answer.topics:
        told = {
            one.partition_index: one.offset if not one.error_code else ErrorCode(one.error_code).name
            for one in topic.partitions
        }
        yield f"ends of {topic.name}: {told}"


def _ends(places: Iterable[Place]) -> ListOffsetsRequest:
    wanted: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for topic, partition in places:
        one = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        wanted.setdefault(topic, []).append(one)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=each) for name, each in wanted.items()]
    return ListOffsetsRequest(replica_id=-1, topics=topics)
