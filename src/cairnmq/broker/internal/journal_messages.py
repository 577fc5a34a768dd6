"""What the replication core says, as the messages that carry it, and back."""

from __future__ import annotations

from typing import assert_never

from cairnmq.replication.history import EpochEnd
from cairnmq.replication.messages import (
    Accepted,
    Diverging,
    FencedEpoch,
    FetchPosition,
    FetchReply,
    Gone,
    Room,
    StaleBroker,
    UnknownEpoch,
)
from cairnmq.replication.records import Member
from cairnmq.wire.internal import (
    AcceptedTold,
    DivergingTold,
    FencedTold,
    GoneTold,
    JournalAsk,
    JournalTold,
    NotLeader,
    StaleBrokerTold,
    Told,
    UnknownEpochTold,
)


def ask_of(journal: int, position: FetchPosition) -> JournalAsk:
    """A follower's question about one journal."""
    room = position.room
    return JournalAsk(
        journal,
        position.follower.broker,
        position.follower.broker_epoch,
        position.epoch,
        position.end,
        position.last_epoch,
        position.synced,
        position.echo_ms,
        room.backlog_bytes,
        room.free_bytes,
        room.backlog_percent,
        room.checkpointed,
        position.has_readers,
    )


def position_of(ask: JournalAsk) -> FetchPosition:
    """What the leader's core is asked."""
    follower = Member(ask.follower, ask.follower_epoch)
    room = Room(ask.checkpointed, ask.split_backlog_percent, ask.free_bytes, ask.split_backlog_bytes)
    return FetchPosition(follower, ask.epoch, ask.end, ask.last_epoch, ask.synced, ask.echo_ms, room, ask.has_readers)


def told_of(journal: int, reply: FetchReply | NotLeader, size: int = 0) -> JournalTold:
    """What the leader tells, with so many raw bytes."""
    return JournalTold(journal, _told(reply), size)


def _told(reply: FetchReply | NotLeader) -> Told:
    match reply:
        case Accepted(replicated_end, durable_end, sync, sent_ms, keep_from):
            return AcceptedTold(replicated_end, durable_end, sync, sent_ms, keep_from)
        case Diverging(known):
            return DivergingTold(known.epoch, known.end)
        case Gone(first):
            return GoneTold(first)
        case FencedEpoch(epoch):
            return FencedTold(epoch)
        case UnknownEpoch():
            return UnknownEpochTold()
        case StaleBroker():
            return StaleBrokerTold()
        case NotLeader():
            return reply
    assert_never(reply)


def reply_of(told: JournalTold) -> FetchReply | NotLeader:
    """What the follower's core hears; NotLeader is for its shell."""
    reply = told.reply
    match reply:
        case AcceptedTold(replicated_end, durable_end, sync, sent_ms, keep_from):
            return Accepted(replicated_end, durable_end, sync, sent_ms, keep_from)
        case DivergingTold(epoch, end):
            return Diverging(EpochEnd(epoch, end))
        case GoneTold(first):
            return Gone(first)
        case FencedTold(epoch):
            return FencedEpoch(epoch)
        case UnknownEpochTold():
            return UnknownEpoch()
        case StaleBrokerTold():
            return StaleBroker()
        case NotLeader():
            return reply
    assert_never(reply)
