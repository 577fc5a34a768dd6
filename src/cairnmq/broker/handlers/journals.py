"""DescribeJournals, our own: brokers, journals, and how far the replicas are of those that are led here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeJournalsRequest, DescribeJournalsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.storage_loop.store_stats import JournalStats

DescribedBroker: TypeAlias = DescribeJournalsResponse.DescribedBroker
Described: TypeAlias = DescribeJournalsResponse.DescribedJournal
Member: TypeAlias = DescribeJournalsResponse.Member


def handle(ctx: Context, header: RequestHeader, request: DescribeJournalsRequest) -> DescribeJournalsResponse:
    report = _of_one_node(ctx) if ctx.cluster_report is None else ctx.cluster_report()
    if request.journals is not None:
        wanted = set(request.journals)
        report.journals = [each for each in report.journals if each.journal in wanted]
    return report


def _of_one_node(ctx: Context) -> DescribeJournalsResponse:
    node, address, stats = ctx.node, ctx.node.bootstrap, ctx.store.stats().journals
    broker = DescribeJournalsResponse.DescribedBroker(
        node_id=node.node_id,
        broker_epoch=max(ctx.store.epochs.values()),
        host=address.host,
        port=address.port,
        rack=node.rack,
        is_live=True,
        damaged=[each.number for each in stats if each.damaged],
    )
    return DescribeJournalsResponse(
        cluster_id=node.cluster_id,
        node_id=node.node_id,
        controller_id=ctx.leadership.controller,
        metadata_revision=ctx.catalog.image.version,
        brokers=[broker],
        journals=[_journal(broker, ctx.store.epochs[each.number], each) for each in stats],
    )


def _journal(broker: DescribedBroker, epoch: int, stats: JournalStats) -> Described:
    """With one replica what is written is replicated, and what its disk has synced is durable."""
    member = Member(node_id=broker.node_id, broker_epoch=broker.broker_epoch)
    own = DescribeJournalsResponse.ReplicaEnds(
        node_id=broker.node_id, is_in_sync=True, end=stats.end, synced=stats.synced, lag_ms=0
    )
    return Described(
        journal=stats.number,
        epoch=epoch,
        leader=member,
        replicas=[broker.node_id],
        isr=[member],
        trouble=stats.stopped,
        led_here=DescribeJournalsResponse.LedJournal(
            is_ready=True,
            end=stats.end,
            synced=stats.synced,
            replicated_end=stats.end,
            durable_end=stats.synced,
            split_end=stats.split,
            unsplit_bytes=stats.split_lag,
            replicas=[own],
        ),
    )
