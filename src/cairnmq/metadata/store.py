"""The metadata interface: the few verbs that SQLite offers now, and ZooKeeper and etcd can offer as well.

Keys are paths (`topics/orders`) with a fixed depth per kind. A revision is a number that grows with every change of
the store; the revision of an entry is that of its last change.

A change is made, or refused (`Conflict`), or certainly not made because the store cannot be written now (`Away`), or
its outcome is unknown (`InDoubt`) until `resolve` tells. What only reads raises `Unreachable` instead. `Corrupt` is
raised by all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from cairnmq.types import Epoch

ABSENT = 0
"""The expected revision of a key that must not exist."""


class Entry(Struct, frozen=True, gc=False):
    """A key with its value and the revision of its last change."""

    key: str
    value: bytes
    revision: int


class Put(Struct, frozen=True, gc=False):
    """Set a key. `expect`: the revision it must have now (ABSENT: none), or None for any."""

    key: str
    value: bytes
    expect: int | None = None


class Delete(Struct, frozen=True, gc=False):
    """Remove a key, if it is there."""

    key: str
    expect: int | None = None


class Check(Struct, frozen=True, gc=False):
    """Change nothing, but let the transaction through only at this revision; a leader fences itself with it."""

    key: str
    expect: int


class NextEpoch(Struct, frozen=True, gc=False):
    """Give out this epoch; the transaction goes through only if it is one more than the last one in the cluster."""

    epoch: Epoch


Op: TypeAlias = Put | Delete | Check

EPOCH = "epoch"
"""What a `Conflict` names when `NextEpoch` was not the next one. No key."""


class Conflict(Struct, frozen=True, gc=False):
    """A key was not at the expected revision; nothing was changed."""

    key: str
    expected: int
    actual: int


class Away(Struct, frozen=True, gc=False):
    """The store could not be written in time: certainly nothing was changed, and this change will not be made."""

    reason: str


class InDoubt(Struct, frozen=True, gc=False):
    """Nobody knows yet whether the change was made. `MetadataStore.resolve` finds out."""

    reason: str
    token: int


class Made(Struct, frozen=True, gc=False):
    """What became of a change in doubt: it was made. `epoch` is the last one that was given by then."""

    revision: int
    epoch: Epoch


class Change(Struct, frozen=True, gc=False):
    """A key's new value, None if it was removed."""

    key: str
    value: bytes | None
    revision: int


class Compacted(Struct, frozen=True, gc=False):
    """Changes that were asked for are no longer kept: list everything, then watch from that revision."""

    oldest: int


class Leadership(Struct, frozen=True, gc=False):
    """A won election. `Check(key, revision)` in a transaction fails as soon as it is lost."""

    name: str
    key: str
    revision: int
    epoch: Epoch


class Watch(Protocol):
    """Changes after a revision, in order. A store may skip values that were replaced before anyone looked."""

    def poll(self) -> list[Change] | Compacted:
        """What is new since the last call; never waits."""

    def close(self) -> None:
        """Wake nobody any more."""


class Session(Protocol):
    """A process that is alive as far as the store knows. What it registers ends with it.

    It must be renewed every `pace_ms`. A store that nobody has written for half of a session's time is taken for one
    that could not be written, and such time ends no session: each then has its whole time once more.

    One node has no use for sessions and elections; they are for a cluster, and tested until then.
    """

    @property
    def live(self) -> bool:
        """Whether the store still holds the session for alive."""

    @property
    def confirmed_ms(self) -> int:
        """By the store's clock: when the last exchange began in which the store said that the session is alive."""

    @property
    def pace_ms(self) -> int:
        """How often to renew: a third of the shortest time that any session has."""

    def renew(self) -> bool | Away:
        """Put off its end; False when it has ended. Changes no revision and wakes nobody, unless it finds that another
        session's time has passed."""

    def register(
        self, key: str, value: bytes, *, expect: int = ABSENT, also: Sequence[Op | NextEpoch] = ()
    ) -> int | Conflict | Away | InDoubt:
        """Set a key that disappears with the session, in one transaction with what is to be done `also`. A Conflict
        when the key is not at the expected revision or the session has ended. A key of another session changes hands.
        """

    def elect(self, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Become the leader `name` under a new epoch if nobody is; its key is `leader_key(name)`, to be watched."""

    def close(self) -> None:
        """End it now; what it registered disappears. If the store is away, that happens when its time has passed."""


class MetadataStore(Protocol):
    """Blocking calls, made from one thread. Every change is durable when the call returns."""

    @property
    def revision(self) -> int:
        """The revision of the last change."""

    def get(self, key: str) -> Entry | None:
        """One entry."""

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, which ends with a slash, by key."""

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict | Away | InDoubt:
        """Set one key; its new revision."""

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """All or nothing; the revision that all changed keys now have. A key may occur once. A key that belongs to a
        session stays its session's."""

    def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
        """What became of a change. Away: it was not made and will not be; InDoubt: ask again later."""

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> Watch:
        """Changes with a larger revision. `wake` is called, on any thread, when `poll` would find something."""

    def look(self) -> None:
        """Notice what other processes changed, and wake whoever watches. Cheap, to be called every now and then; a
        store that is told of changes does nothing."""

    def session(self, timeout_ms: int) -> Session | Away:
        """A new session that ends when it is not renewed in time."""

    def held_until_ms(self, key: str) -> int | None:
        """When the session ends that a key belongs to, if it is not renewed until then, by the store's clock. None: it
        belongs to none, or the store does not tell."""

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given, 0 if none was."""

    def next_epoch(self, above: int = 0) -> Epoch | Away:
        """One more than any epoch before, in the whole cluster, and than `above`. Away: perhaps one was given, which
        then is nobody's."""

    def raise_revision(self, revision: int) -> Away | None:
        """No later change has this revision or a lower one. For a store that was put back to an older state. Away:
        perhaps it was done; once more does no harm."""

    def close(self) -> None:
        """Give everything back; sessions of this process end."""


def leader_key(name: str) -> str:
    """Where the leader of an election is to be seen."""
    return f"leaders/{name}"
