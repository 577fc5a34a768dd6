"""The cluster as this broker knows it, for the status page and /metrics: in detail the journals that it leads, others
as the metadata have them. `cairn cluster health` asks all brokers; here one tells what it can."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq.broker.http.chunked import slices
from cairnmq.broker.metrics import Exposition, Sample

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.leadership import JournalView
    from cairnmq.metadata.image import Topic
    from cairnmq.wire.messages import DescribeJournalsResponse

    Row: TypeAlias = tuple[dict[str, str], int, DescribeJournalsResponse.ReplicaEnds]

_ELSEWHERE = dict.fromkeys(("start", "visible", "end", "bytes"))


def cluster(ctx: Context) -> dict[str, Any] | None:
    """None on one node."""
    if ctx.cluster_report is None:
        return None
    # A broker alone does without these.
    from cairnmq.client.cluster_answers import told_of
    from cairnmq.client.cluster_report import merge

    report = merge({ctx.node.node_id: told_of(ctx.cluster_report())})
    return {
        "revision": report.revision,
        "problems": report.problems,
        "notes": report.notes,
        "brokers": report.brokers,
        "journals": report.journals,
    }


async def with_leaders(ctx: Context, topic: Topic, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of all partitions with their leader and replicas. Of those without a replica here nothing else is known."""
    here = {row["partition"]: row for row in rows}
    found = []
    for part in slices(topic.places()):
        for partition, queue_id, journal in part:
            view = ctx.leadership.view(journal)
            row = here.get(partition) or {"partition": partition, "queue_id": queue_id, **_ELSEWHERE}
            found.append({**row, "leader": view.leader, "replicas": view.replicas})
        await asyncio.sleep(0)
    return found


def cluster_metrics(ctx: Context, out: Exposition) -> None:
    """Of the journals that this broker leads, but for the number of those that nobody leads."""
    leadership = ctx.leadership
    led = sorted(leadership.led)
    out.value("cairn_led_journals", len(led))
    out.value("cairn_offline_journals", sum(view.leader < 0 for view in leadership.views.values()))
    views = [(_of(journal), leadership.view(journal)) for journal in led]
    out.series("cairn_isr_size", [Sample(len(view.isr), labels) for labels, view in views])
    out.series(
        "cairn_out_of_sync_replicas",
        [Sample(_missing(view), labels) for labels, view in views],
    )
    nearest = ctx.nearest
    out.value("cairn_follower_reads_bytes_total", 0 if nearest is None else nearest.bytes_given)
    out.value("cairn_follower_reads_sent_back_total", 0 if nearest is None else nearest.sent_back)
    out.value("cairn_follower_reads_sent_on_total", 0 if nearest is None else nearest.sent_on)
    installs = [Sample(share, _of(journal)) for journal, share in leadership.installs.items()]
    out.series("cairn_install_progress_ratio", installs)
    _replica_metrics([] if ctx.cluster_report is None else _told(ctx.cluster_report()), out)


def _replica_metrics(told: list[Row], out: Exposition) -> None:
    """What followers of led journals have told."""
    out.series("cairn_replica_lag_bytes", [Sample(behind, labels) for labels, behind, _ in told])
    lags = [(labels, one.lag_ms) for labels, _, one in told if one.lag_ms >= 0]
    out.series("cairn_replica_lag_seconds", [Sample(ms / 1000, labels) for labels, ms in lags])
    backlogs = [(labels, one.unsplit_percent) for labels, _, one in told if one.unsplit_percent >= 0]
    out.series("cairn_replica_backlog_ratio", [Sample(percent / 100, labels) for labels, percent in backlogs])
    free = [(labels, one.free_bytes) for labels, _, one in told if one.free_bytes >= 0]
    out.series("cairn_replica_free_bytes", [Sample(left, labels) for labels, left in free])
    out.series("cairn_replica_slows_producers", [Sample(one.slows_producers, labels) for labels, _, one in told])


def _missing(view: JournalView) -> int:
    """The dead stay in the ISR until the leader has taken them out."""
    return len(set(view.replicas) - set(view.isr) | set(view.offline))


def _told(report: DescribeJournalsResponse) -> list[Row]:
    """Of each follower that has told how far it is: labels, bytes behind, and what it told."""
    return [
        ({**_of(row.journal), "replica": str(replica.node_id)}, max(0, row.led_here.end - replica.end), replica)
        for row in report.journals
        if row.led_here is not None
        for replica in row.led_here.replicas
        if replica.node_id != report.node_id and replica.end >= 0
    ]


def _of(journal: int) -> dict[str, str]:
    return {"journal": str(journal)}
