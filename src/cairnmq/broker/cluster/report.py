"""What this broker knows of the cluster, as DescribeJournals tells it: all of the metadata, and how far replicas of the
journals are that it leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.replication.controller import reach
from cairnmq.replication.followers_progress import Progress
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.messages import ENDLESS
from cairnmq.replication.records import Kept
from cairnmq.wire.messages import DescribeJournalsResponse

if TYPE_CHECKING:
    from cairnmq.broker.cluster.journal_replica import JournalReplica
    from cairnmq.broker.cluster.replicas import Replicas

Described: TypeAlias = DescribeJournalsResponse.DescribedJournal
Member: TypeAlias = DescribeJournalsResponse.Member
Ends: TypeAlias = DescribeJournalsResponse.ReplicaEnds
ToldEnd: TypeAlias = DescribeJournalsResponse.ToldEnd

UNCLEAN_TOLD_MS = 7 * 24 * 3600 * 1000
"""So long everybody is told of an election that may have lost records. The log has it for ever."""


def report_of(
    cluster: ClusterImage,
    replicas: Replicas,
    *,
    cluster_id: str,
    node_id: int,
    session_age_ms: int,
    away_ms: int,
    wall_ms: int,
    links: Mapping[int, str] = {},
    slots_trouble: str = "",
) -> DescribeJournalsResponse:
    """`session_age_ms`: since the store last confirmed this broker. `away_ms`: since when the store is away, or -1.
    `wall_ms`: the date. `links`: those that cannot be opened, with the reason. `slots_trouble`: why no group can
    begin."""
    view = cluster.view
    brokers = [
        DescribeJournalsResponse.DescribedBroker(
            node_id=broker,
            broker_epoch=entry.record.broker_epoch,
            host=entry.host,
            port=entry.port,
            rack=entry.rack,
            is_live=view.present(broker) is not None,
            session_age_ms=session_age_ms if broker == node_id else -1,
            is_stopping=entry.record.stopping,
            damaged=sorted(entry.record.damaged),
        )
        for broker, entry in sorted(cluster.brokers.items())
    ]
    return DescribeJournalsResponse(
        cluster_id=cluster_id,
        node_id=node_id,
        controller_id=cluster.controller.broker if cluster.controller is not None else -1,
        metadata_revision=view.revision,
        metadata_away_ms=away_ms,
        brokers=brokers,
        journals=[
            _journal(kept, cluster, replicas.by_journal.get(number), replicas, wall_ms)
            for number, kept in sorted(view.journals.items())
        ],
        links=[DescribeJournalsResponse.FailingLink(node_id=broker, trouble=why) for broker, why in links.items()],
        slots_trouble=slots_trouble,
    )


def _journal(
    kept: Kept, cluster: ClusterImage, replica: JournalReplica | None, replicas: Replicas, wall_ms: int
) -> Described:
    record, view = kept.record, cluster.view
    leader = record.leader
    return Described(
        journal=record.journal,
        epoch=record.epoch,
        leader=Member(node_id=leader.broker, broker_epoch=leader.broker_epoch) if leader is not None else None,
        replicas=list(record.replicas),
        isr=[Member(node_id=one.broker, broker_epoch=one.broker_epoch) for one in record.isr],
        offline=[broker for broker in record.replicas if view.present(broker) is None],
        resigned=-1 if record.resigned is None else record.resigned,
        is_weak=record.weak,
        recovered=record.recovered,
        unclean=record.unclean if wall_ms - record.unclean_ms < UNCLEAN_TOLD_MS else 0,
        trouble=replica.state.told_trouble if replica is not None else None,
        led_here=_led(replica, replicas) if replica is not None else None,
        ends=[
            ToldEnd(node_id=broker, last_epoch=end[0], end=end[1])
            for broker in record.replicas
            if (end := reach(broker, record, view)) is not None
        ],
    )


def _led(replica: JournalReplica, replicas: Replicas) -> DescribeJournalsResponse.LedJournal | None:
    leader = replica.leader
    if leader is None:
        return None
    journal, split = replica.state.path.journal, replica.state.split_end
    return DescribeJournalsResponse.LedJournal(
        is_ready=replica.is_ready,
        end=journal.end,
        synced=journal.synced,
        replicated_end=leader.replicated_end,
        durable_end=leader.durable_end,
        split_end=split,
        unsplit_bytes=journal.end - split,
        replicas=[_ends(one, leader) for one in leader.progress(replicas.now_ms())],
    )


def _ends(one: Progress, leader: JournalLeader) -> Ends:
    ends = Ends(
        node_id=one.broker,
        is_in_sync=leader.record.member(one.broker) is not None,
        end=one.end,
        synced=one.synced,
        lag_ms=one.lag_ms,
        slows_producers=any(member.broker == one.broker for member in leader.room.short(leader.members())),
    )
    if one.room is not None:
        ends.unsplit_bytes, ends.unsplit_percent = one.room.backlog_bytes, one.room.backlog_percent
        ends.free_bytes = one.room.free_bytes if one.room.free_bytes < ENDLESS else -1
    return ends
