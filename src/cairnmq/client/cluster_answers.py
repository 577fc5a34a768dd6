"""The plan that asks every broker about the cluster's journals, and their answers as values. Pure."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.client.cluster import describe_journals
from cairnmq.client.cluster_report import Led, ReplicaTold, Told
from cairnmq.client.errors import ClientError
from cairnmq.client.session import Node, Plan, Session
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, PublishedEnd
from cairnmq.wire.messages import DescribeJournalsResponse


class Answers(Struct, frozen=True):
    """By broker: what it told, or why it did not."""

    told: dict[int, Told]
    silent: dict[int, str]


def ask_brokers(session: Session) -> Plan[Answers]:
    """Asks all that the metadata name, each once. Brokers of another make are silent."""
    cluster = yield from session.metadata([])
    nodes = sorted(cluster.nodes)
    told: dict[int, Told] = {}
    silent: dict[int, str] = {}
    for node in nodes:
        try:
            told[node] = told_of((yield from describe_journals(session, node)))
        except ClientError as failed:
            silent[node] = str(failed)
    return Answers(told, silent)


def told_of(answer: DescribeJournalsResponse) -> Told:
    """One broker's answer as a value. What it does not send decides nothing here."""
    return Told(
        _view(answer),
        {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in answer.brokers},
        answer.controller_id,
        {row.journal: _led(row.epoch, row.led_here) for row in answer.journals if row.led_here is not None},
        {row.node_id: row.session_age_ms for row in answer.brokers if row.session_age_ms >= 0},
        {row.journal: row.trouble for row in answer.journals if row.trouble},
        f"away for {answer.metadata_away_ms / 1000:.1f} s" if answer.metadata_away_ms > 0 else "",
        {row.node_id: row.trouble for row in answer.links},
        answer.slots_trouble,
    )


def _view(answer: DescribeJournalsResponse) -> ClusterView:
    return ClusterView(
        revision=answer.metadata_revision,
        last_epoch=max((row.epoch for row in answer.journals), default=0),
        journals={row.journal: Kept(_record(row), answer.metadata_revision) for row in answer.journals},
        brokers={
            row.node_id: BrokerRecord(
                row.node_id,
                row.broker_epoch,
                stopping=row.is_stopping,
                damaged=frozenset(row.damaged),
                ends=_ends(answer, row.node_id),
            )
            for row in answer.brokers
        },
        live={row.node_id: row.broker_epoch for row in answer.brokers if row.is_live},
    )


def _ends(answer: DescribeJournalsResponse, broker: int) -> dict[int, PublishedEnd]:
    """How far a broker reaches in journals without a leader."""
    return {
        row.journal: PublishedEnd(row.epoch, told.last_epoch, told.end)
        for row in answer.journals
        for told in row.ends
        if told.node_id == broker
    }


def _record(row: DescribeJournalsResponse.DescribedJournal) -> JournalRecord:
    return JournalRecord(
        row.journal,
        tuple(row.replicas),
        _member(row.leader) if row.leader is not None else None,
        row.epoch,
        tuple(map(_member, row.isr)),
        row.resigned if row.resigned >= 0 else None,
        row.is_weak,
        row.recovered,
        row.unclean,
    )


def _member(told: DescribeJournalsResponse.Member) -> Member:
    return Member(told.node_id, told.broker_epoch)


def _led(epoch: int, told: DescribeJournalsResponse.LedJournal) -> Led:
    replicas = tuple(
        ReplicaTold(
            one.node_id,
            one.end,
            one.synced,
            one.lag_ms,
            one.unsplit_bytes,
            one.unsplit_percent,
            one.free_bytes,
            one.slows_producers,
        )
        for one in told.replicas
    )
    return Led(epoch, told.end, told.replicated_end, told.durable_end, replicas, told.is_ready, told.unsplit_bytes)
