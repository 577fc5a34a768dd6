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


def ask_of(journal: int, position: FetchPosition, split_backlog_bytes: int, free_bytes: int) -> JournalAsk:
    """A follower's question about one journal."""
    return JournalAsk(
        journal,
        position.follower.broker,
        position.follower.broker_epoch,
        position.epoch,
        position.end,
        position.last_epoch,
        position.synced,
        position.echo_ms,
        split_backlog_bytes,
        free_bytes,
    )


def position_of(ask: JournalAsk) -> FetchPosition:
    """What the leader's core is asked."""
    follower = Member(ask.follower, ask.follower_epoch)
    return FetchPosition(follower, ask.epoch, ask.end, ask.last_epoch, ask.synced, ask.echo_ms)


def told_of(journal: int, reply: FetchReply | NotLeader, size: int = 0) -> JournalTold:
    """What the leader tells, with so many raw bytes."""
    return JournalTold(journal, _told(reply), size)


def _told(reply: FetchReply | NotLeader) -> Told:
    match reply:
        case Accepted(replicated_end, durable_end, sync, sent_ms):
            return AcceptedTold(replicated_end, durable_end, sync, sent_ms)
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
        case AcceptedTold(replicated_end, durable_end, sync, sent_ms):
            return Accepted(replicated_end, durable_end, sync, sent_ms)
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
