"""DescribeJournals, our own: brokers, journals, and how far the replicas are of those that are led here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeJournalsRequest, DescribeJournalsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = DescribeJournalsResponse.DescribedJournal
Member: TypeAlias = DescribeJournalsResponse.Member


def handle(ctx: Context, header: RequestHeader, request: DescribeJournalsRequest) -> DescribeJournalsResponse:
    report = _of_one_node(ctx) if ctx.cluster_report is None else ctx.cluster_report()
    if request.journals is not None:
        wanted = set(request.journals)
        report.journals = [each for each in report.journals if each.journal in wanted]
    return report


def _of_one_node(ctx: Context) -> DescribeJournalsResponse:
    node, address, engine = ctx.node, ctx.node.bootstrap, ctx.store.engine
    broker = DescribeJournalsResponse.DescribedBroker(
        node_id=node.node_id,
        broker_epoch=engine.epoch,
        host=address.host,
        port=address.port,
        rack=node.rack,
        is_live=True,
        damaged=[journal for journal in sorted(engine.paths) if engine.scans[journal].damage is not None],
    )
    return DescribeJournalsResponse(
        cluster_id=node.cluster_id,
        node_id=node.node_id,
        controller_id=ctx.leadership.controller,
        metadata_revision=ctx.catalog.image.version,
        brokers=[broker],
        journals=[_journal(ctx, journal) for journal in sorted(engine.paths)],
    )


def _journal(ctx: Context, number: int) -> Described:
    engine, node_id = ctx.store.engine, ctx.node.node_id
    path, member = engine.paths[number], Member(node_id=node_id, broker_epoch=engine.epoch)
    journal = path.journal
    own = DescribeJournalsResponse.ReplicaEnds(
        node_id=node_id, is_in_sync=True, end=journal.end, synced=journal.synced, lag_ms=0
    )
    return Described(
        journal=number,
        epoch=engine.epochs[number],
        leader=member,
        replicas=[node_id],
        isr=[member],
        trouble=path.stopped,
        led_here=DescribeJournalsResponse.LedJournal(
            is_ready=True,
            end=journal.end,
            synced=journal.synced,
            replicated_end=journal.replicated_end,
            durable_end=journal.durable_end,
            split_end=engine.split[number],
            unsplit_bytes=journal.end - engine.split[number],
            replicas=[own],
        ),
    )
