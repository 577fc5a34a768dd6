"""The cluster as this broker knows it, for the status page and /metrics: in detail the journals that it leads, others
as the metadata have them. `cairn cluster health` asks all brokers; here one tells what it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cairnmq.broker.metrics import Exposition, Sample

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.leadership import JournalView
    from cairnmq.wire.messages import DescribeJournalsResponse


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
    installs = [Sample(share, _of(journal)) for journal, share in leadership.installs.items()]
    out.series("cairn_install_progress_ratio", installs)
    lags = [] if ctx.cluster_report is None else _lags(ctx.cluster_report())
    out.series("cairn_replica_lag_bytes", [Sample(behind, labels) for labels, behind, _ in lags])
    out.series("cairn_replica_lag_seconds", [Sample(ms / 1000, labels) for labels, _, ms in lags if ms >= 0])


def _missing(view: JournalView) -> int:
    """The dead stay in the ISR until the leader has taken them out."""
    return len(set(view.replicas) - set(view.isr) | set(view.offline))


def _lags(report: DescribeJournalsResponse) -> list[tuple[dict[str, str], int, int]]:
    """Of each follower that has told how far it is: labels, bytes and milliseconds behind."""
    return [
        ({**_of(row.journal), "replica": str(replica.node_id)}, max(0, row.led_here.end - replica.end), replica.lag_ms)
        for row in report.journals
        if row.led_here is not None
        for replica in row.led_here.replicas
        if replica.node_id != report.node_id and replica.end >= 0
    ]


def _of(journal: int) -> dict[str, str]:
    return {"journal": str(journal)}
