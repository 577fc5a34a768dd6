"""The follower of one journal: what it asks for, what it may append, and what it may cut.

It folds, splits and shows nothing above the replicated end that it knows (R14), so a cut touches files and positions
only. It never cuts below that end (R15, invariant 16), but for two elections since it learned of it: one among members
that had all restarted may lack what not all of them had synced, an unclean one may lack anything.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from cairnmq.errors import ErrorCode
from cairnmq.replication.follower_reads import FollowerReads
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.messages import (
    Accepted,
    Diverging,
    FetchPosition,
    FetchReply,
    Gone,
    Room,
)
from cairnmq.replication.records import JournalRecord, Member


class Append(Struct, frozen=True):
    """Whole entries may be appended; `sync` asks for a sync at once."""

    sync: bool


class Cut(Struct, frozen=True):
    """Cut the journal here, durably, before anything else is appended: a cut that a power loss takes back must not
    bring back bytes beside those that were reported as synced."""

    to: int


class Ignore(Struct, frozen=True):
    """The reply is to a request of another epoch or position."""


class Stop(Struct, frozen=True):
    """This replica cannot go on by itself; the reason is for a person."""

    reason: str


class Install(Struct, frozen=True):
    """What comes next is gone on the leader, whose journal begins at `first`: all of it, with the records of its
    queues, is to be taken over as it is there (R29). Until then this replica is not asked for anything more."""

    first: int


class Reread(Struct, frozen=True):
    """Somebody knows more than this broker's view: read the store, then ask again."""


class KnownEnds(Struct, frozen=True, gc=False):
    """What a replica knows of the journal, and in which epoch it learned it. Stored with each checkpoint."""

    replicated: int = 0
    durable: int = 0
    epoch: int = 0

    def floor(self, record: JournalRecord) -> int:
        """The leader of this record has everything below it."""
        if record.unclean > self.epoch:
            return 0
        return self.durable if record.recovered > self.epoch else self.replicated

    def learned(self, replicated: int, durable: int, epoch: int) -> KnownEnds:
        """Ends never fall within an epoch, nor from one to the next but for a cut."""
        return KnownEnds(max(self.replicated, replicated), max(self.durable, durable), max(self.epoch, epoch))

    def cut(self, to: int) -> KnownEnds:
        """After a cut that went below."""
        return KnownEnds(min(self.replicated, to), min(self.durable, to), self.epoch)


NO_LIMITS = Room()

FollowerStep: TypeAlias = Append | Cut | Ignore | Install | Stop | Reread


class JournalFollower:
    """Lives as long as one leader is followed in one epoch. `history` is that of the own journal, shared with it."""

    __slots__ = ("echo_ms", "history", "known", "me", "reads", "record", "synced")

    def __init__(
        self, me: Member, record: JournalRecord, history: EpochHistory, *, synced: int, known: KnownEnds
    ) -> None:
        self.me = me
        self.record = record
        self.history = history
        self.synced = synced
        self.known = known
        self.echo_ms = 0
        self.reads = FollowerReads()

    def position(self, room: Room = NO_LIMITS, now_ms: int = 0) -> FetchPosition:
        """The next request of a replica that has this `room` left."""
        return FetchPosition(
            self.me,
            self.record.epoch,
            self.history.end,
            self.history.last_epoch,
            self.synced,
            self.echo_ms,
            room,
            self.reads.has_readers(now_ms),
            now_ms,
        )

    def replied(self, asked: FetchPosition, reply: FetchReply) -> FollowerStep:
        """What the leader's reply to `asked` means. It is about the journal as it was then: a late reply means nothing,
        also when the journal has grown to the same end again after a cut."""
        if not self._is_about_now(asked):
            return Ignore()
        if isinstance(reply, Accepted):
            self.echo_ms = max(self.echo_ms, reply.sent_ms)
            return Append(reply.sync)
        if isinstance(reply, Diverging):
            return self._cut(self.history.cut_for(reply.known))
        if isinstance(reply, Gone):
            return Install(reply.first)
        return Reread()

    def _is_about_now(self, asked: FetchPosition) -> bool:
        now = self.history
        return (asked.epoch, asked.end, asked.last_epoch) == (self.record.epoch, now.end, now.last_epoch)

    def _cut(self, to: int) -> FollowerStep:
        if to < self.known.floor(self.record):
            return Stop(f"the leader of epoch {self.record.epoch} lacks replicated bytes from {to} on")
        return Cut(to)

    def appended(self, reply: Accepted) -> None:
        """After the entries that came with the reply were appended: how much of the own journal is replicated."""
        end = self.history.end
        self.known = self.known.learned(min(reply.replicated_end, end), min(reply.durable_end, end), self.record.epoch)

    def shows(self, asked: FetchPosition, reply: Accepted, end: int) -> None:
        """After that, readers here may see what lies before `end`."""
        self.reads.shows(end, reply.replicated_end, asked.asked_ms)

    def read_refusal(self, client_epoch: int, now_ms: int, lag_max_ms: int) -> ErrorCode:
        """Why a reader is not answered from this replica; NONE: it is. `client_epoch`: the latest epoch that it knows,
        -1 if it does not say."""
        if 0 <= client_epoch < self.record.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not self.reads.may_serve(now_ms, lag_max_ms):
            # Whatever the client's epoch is: nobody knows whether this broker will ever hear of it.
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return ErrorCode.UNKNOWN_LEADER_EPOCH if client_epoch > self.record.epoch else ErrorCode.NONE

    def synced_to(self, end: int) -> None:
        """The own disk has everything up to here."""
        self.synced = max(self.synced, min(end, self.history.end))

    def was_cut(self, to: int) -> None:
        """The cut is done and durable."""
        self.history.cut(to)
        self.synced = min(self.synced, to)
        self.known = self.known.cut(to)
