"""The metadata interface: the few verbs that SQLite offers now, and ZooKeeper and etcd can offer as well.

Keys are paths (`topics/orders`) with a fixed depth per kind. A revision is a number that grows with every change of
the store; the revision of an entry is that of its last change. Whether time has passed is told by the caller.
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


Op: TypeAlias = Put | Delete | Check


class Conflict(Struct, frozen=True, gc=False):
    """A key was not at the expected revision; nothing was changed."""

    key: str
    expected: int
    actual: int


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

    One node has no use for sessions and elections; they are for a cluster, and tested until then.
    """

    @property
    def live(self) -> bool:
        """Whether the store still holds the session for alive."""

    def renew(self, now_ms: int) -> bool:
        """Put off its end; False when it has ended."""

    def register(self, key: str, value: bytes) -> int | Conflict:
        """Set a key that disappears with the session; a Conflict when the key exists or the session has ended."""

    def elect(self, name: str, value: bytes) -> Leadership | Conflict:
        """Become the leader `name` under a new epoch if nobody is; its key is `leader_key(name)`, to be watched."""

    def close(self) -> None:
        """End it now; what it registered disappears."""


class MetadataStore(Protocol):
    """Blocking calls, made from one thread. Every change is durable when the call returns."""

    @property
    def revision(self) -> int:
        """The revision of the last change."""

    def get(self, key: str) -> Entry | None:
        """One entry."""

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, which ends with a slash, by key."""

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict:
        """Set one key; its new revision."""

    def transact(self, ops: Sequence[Op]) -> int | Conflict:
        """All or nothing; the revision that all changed keys now have. A key may occur once."""

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> Watch:
        """Changes with a larger revision. `wake` is called, on any thread, when `poll` would find something."""

    def session(self, now_ms: int, timeout_ms: int) -> Session:
        """A new session that ends when it is not renewed in time."""

    def expire(self, now_ms: int) -> int:
        """End the sessions whose time has passed; how many did."""

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given, 0 if none was."""

    def next_epoch(self, above: int = 0) -> Epoch:
        """One more than any epoch before, in the whole cluster, and than `above`."""

    def raise_revision(self, revision: int) -> None:
        """No later change has this revision or a lower one. For a store that was put back to an older state."""

    def close(self) -> None:
        """Give everything back; sessions of this process end."""


def leader_key(name: str) -> str:
    """Where the leader of an election is to be seen."""
    return f"leaders/{name}"
