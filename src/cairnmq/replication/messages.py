"""What a leader and its followers tell each other about positions (R15). The bytes themselves travel beside it."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from cairnmq.replication.history import EpochEnd
from cairnmq.replication.records import Member

ENDLESS = (1 << 63) - 1


class Room(Struct, frozen=True, gc=False):
    """What a replica has left, and which part of the journal it may still need."""

    checkpointed: int = 0  # what lies before it is in queue logs, for good
    backlog_percent: int = 0  # what waits for its splitter, of the most that may
    free_bytes: int = ENDLESS  # on the disk of its journals
    backlog_bytes: int = 0  # what waits for its splitter


class FetchPosition(Struct, frozen=True, gc=False):
    """A follower asks for what comes after its own end."""

    follower: Member
    epoch: int  # of the leader it follows
    end: int
    last_epoch: int  # of its last entry
    synced: int
    echo_ms: int = 0  # when the leader sent the response that this request follows
    room: Room = Room()
    has_readers: bool = False  # they wait for what the leader shows
    asked_ms: int = 0  # by the follower's own clock; nobody else is told


class Accepted(Struct, frozen=True, gc=False):
    """The follower's journal is the beginning of the leader's: bytes from its end on may follow."""

    replicated_end: int
    durable_end: int
    sync: bool  # somebody waits for the follower's sync: sync at once, and tell
    sent_ms: int
    keep_from: int = 0  # some replica may still need the journal from here on


class Diverging(Struct, frozen=True, gc=False):
    """Cut the journal for this, then ask again."""

    known: EpochEnd


class Gone(Struct, frozen=True, gc=False):
    """The leader no longer has the bytes at this position."""

    first: int


class FencedEpoch(Struct, frozen=True, gc=False):
    """The follower follows an epoch that is over; this one is the leader's."""

    epoch: int


class UnknownEpoch(Struct, frozen=True, gc=False):
    """The follower knows of a later leader, or of a later life of its own, than this broker does: ask again later."""


class StaleBroker(Struct, frozen=True, gc=False):
    """The follower's broker has registered again since: this is an earlier life of it."""


FetchReply: TypeAlias = Accepted | Diverging | Gone | FencedEpoch | UnknownEpoch | StaleBroker
