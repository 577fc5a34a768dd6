"""A metadata store in memory, for tests of what runs on one: several processes, virtual time, lost responses.

It passes the conformance suite of all stores (tests/unit/metadata/conformance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from cairnmq.metadata.expectations import agreed
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Change,
    Check,
    Compacted,
    Conflict,
    Delete,
    Entry,
    InDoubt,
    Leadership,
    Made,
    NextEpoch,
    Op,
    Put,
    leader_key,
)
from cairnmq.metadata.store_watches import StoreWatch, StoreWatches
from cairnmq.types import Epoch

HISTORY = 1024
_REASON = "the metadata store does not respond"

T = TypeVar("T")


class _Row(Struct):
    deadline_ms: int
    timeout_ms: int


class MemoryState:
    """What all processes share."""

    def __init__(self, clock: Callable[[], int], history: int = HISTORY) -> None:
        self.clock = clock
        self.revision = self.compacted = 0
        self.epoch = Epoch(0)
        self.history: list[Change] = []
        self.sessions: dict[int, _Row] = {}
        self.made: dict[int, Made] = {}  # by token
        self._entries: dict[str, tuple[Entry, int]] = {}  # with the session
        self._history = history
        self._last_session = self._last_token = 0
        self._written_ms = clock()

    def token(self) -> int:
        """Names a transaction."""
        self._last_token += 1
        return self._last_token

    def find(self, key: str) -> Entry | None:
        """Not if its session has ended."""
        entry, session = self._entries.get(key, (None, 0))
        return entry if not session or session in self.sessions else None

    def deadline_of(self, key: str) -> int | None:
        """Of the session that it belongs to."""
        row = self.sessions.get(self._entries[key][1]) if key in self._entries else None
        return None if row is None else row.deadline_ms

    def below(self, prefix: str) -> list[Entry]:
        """One level."""
        keys = sorted(key for key in self._entries if key.startswith(prefix) and "/" not in key[len(prefix) :])
        return [entry for entry in map(self.find, keys) if entry is not None]

    def pass_time(self) -> None:
        """As in SQLite: half of a session's time without a write ends none."""
        now_ms = self.clock()
        silence_ms, self._written_ms = now_ms - self._written_ms, now_ms
        for number, row in list(self.sessions.items()):
            if silence_ms > row.timeout_ms // 2:
                row.deadline_ms = max(row.deadline_ms, now_ms + row.timeout_ms)
            elif row.deadline_ms <= now_ms:
                del self.sessions[number]
        self.remove_orphans()

    def remove_orphans(self) -> None:
        """Keys of sessions that have ended."""
        gone = [key for key, (_, session) in self._entries.items() if session and session not in self.sessions]
        self.apply([Delete(key) for key in gone], {})

    def add_session(self, timeout_ms: int) -> int:
        """With a number that none had."""
        self._last_session += 1
        self.sessions[self._last_session] = _Row(self.clock() + timeout_ms, timeout_ms)
        return self._last_session

    def change(self, ops: Sequence[Op | NextEpoch], held: Mapping[str, int]) -> int | Conflict:
        """All or nothing."""
        found = agreed(ops, self._revision, lambda: self.epoch)
        if isinstance(found, Conflict):
            return found
        keyed, epoch = found
        if epoch is not None:
            self.epoch = Epoch(epoch)
        return self.apply(keyed, held)

    def changes(self, after: int) -> tuple[Sequence[Change] | Compacted, int]:
        """History after a revision, and up to which."""
        if after < self.compacted:
            return Compacted(self.compacted), self.revision
        return [change for change in self.history if change.revision > after], self.revision

    def _revision(self, key: str) -> int:
        entry = self.find(key)
        return ABSENT if entry is None else entry.revision

    def apply(self, ops: Sequence[Op], held: Mapping[str, int]) -> int:
        """Under one new revision; none when nothing changes."""
        revision, changes = self.revision + 1, list[Change]()
        for op in ops:
            _, session = self._entries.get(op.key, (None, 0))
            if isinstance(op, Put):
                self._entries[op.key] = Entry(op.key, op.value, revision), held.get(op.key, session)
                changes.append(Change(op.key, op.value, revision))
            elif not isinstance(op, Check) and self._entries.pop(op.key, None) is not None:
                changes.append(Change(op.key, None, revision))
        if changes:
            self.revision = revision
            self.history += sorted(changes, key=lambda change: change.key)
            self.compacted = max(self.compacted, revision - self._history)
            self.history = [change for change in self.history if change.revision > self.compacted]
        return self.revision


class MemoryStore:
    """One process. `away`: it cannot write. `loses`: the response of a change is lost, and the change is made or not.

    What other processes changed wakes watches with the next `look`."""

    def __init__(self, state: MemoryState) -> None:
        self.away = False
        self.loses: bool | None = None  # True: made
        self.state = state
        self.own: list[MemorySession] = []
        self._doubts: set[int] = set()
        self._watches = StoreWatches(state.changes, state.revision)

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self.state.revision

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given."""
        return self.state.epoch

    def get(self, key: str) -> Entry | None:
        """One entry."""
        return self.state.find(key)

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`."""
        assert prefix.endswith("/"), prefix
        return self.state.below(prefix)

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict | Away | InDoubt:
        """Set one key."""
        return self.transact([Put(key, value, expect)])

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """All or nothing."""
        return self.write(lambda: self.state.change(ops, {}))

    def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
        """What became of a change."""
        if self.away and doubt.token in self._doubts:
            return doubt
        self._doubts.discard(doubt.token)
        return self.state.made.get(doubt.token) or Away(doubt.reason)

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> StoreWatch:
        """Changes with a larger revision."""
        return self._watches.open(from_revision, wake)

    def look(self) -> None:
        """Wake watches if another process changed something."""
        self._watches.notice(self.state.revision)

    def session(self, timeout_ms: int) -> MemorySession | Away:
        """A new session."""
        sent_ms = self.state.clock()
        number = self.write(lambda: self.state.add_session(timeout_ms))
        if isinstance(number, Away | InDoubt):
            return Away(number.reason)
        self.own.append(MemorySession(self, number, timeout_ms, sent_ms))
        return self.own[-1]

    def held_until_ms(self, key: str) -> int | None:
        """When the session ends that a key belongs to."""
        return self.state.deadline_of(key)

    def next_epoch(self, above: int = 0) -> Epoch | Away:
        """One more than any epoch before, and than `above`."""
        epoch = self.write(lambda: self.raise_epoch(above))
        return Away(epoch.reason) if isinstance(epoch, InDoubt) else epoch

    def raise_epoch(self, above: int = 0) -> Epoch:
        """Within `write`."""
        self.state.epoch = Epoch(max(self.state.epoch, above) + 1)
        return self.state.epoch

    def raise_revision(self, revision: int) -> Away | None:
        """No later change has this revision or a lower one."""

        def work() -> None:
            self.state.revision = max(self.state.revision, revision)

        answer = self.write(work)
        return None if answer is None else Away(answer.reason)

    def close(self) -> None:
        """Sessions of this process end."""
        for session in list(self.own):
            session.close()

    def write(self, work: Callable[[], T]) -> T | Away | InDoubt:
        """One transaction."""
        if self.away:
            return Away(_REASON)
        token = self.state.token()
        if self.loses is not None:
            self._doubts.add(token)
        if self.loses is False:
            return InDoubt(_REASON, token)
        self.state.pass_time()
        answer = work()
        if self.loses is None:
            self.look()
            return answer
        if not isinstance(answer, Conflict):
            self.state.made[token] = Made(self.state.revision, self.state.epoch)
        return InDoubt(_REASON, token)


class MemorySession:
    """A session of one process."""

    def __init__(self, store: MemoryStore, number: int, timeout_ms: int, confirmed_ms: int) -> None:
        self.confirmed_ms = confirmed_ms
        self._store = store
        self._number = number
        self._timeout_ms = timeout_ms

    @property
    def live(self) -> bool:
        """Whether the store still holds the session for alive."""
        return self._number in self._store.state.sessions

    @property
    def pace_ms(self) -> int:
        """How often to renew."""
        return min((row.timeout_ms for row in self._store.state.sessions.values()), default=self._timeout_ms) // 3

    def renew(self) -> bool | Away:
        """Put off its end."""
        sent_ms = self._store.state.clock()

        def work() -> bool:
            row = self._store.state.sessions.get(self._number)
            if row is not None:
                row.deadline_ms = self._store.state.clock() + self._timeout_ms
            return row is not None

        alive = self._store.write(work)
        if alive is True:
            self.confirmed_ms = sent_ms
        return Away(alive.reason) if isinstance(alive, InDoubt) else alive

    def register(
        self, key: str, value: bytes, *, expect: int = ABSENT, also: Sequence[Op | NextEpoch] = ()
    ) -> int | Conflict | Away | InDoubt:
        """Set a key that disappears with the session."""
        ops = [Put(key, value, expect), *also]
        return self._store.write(
            lambda: self._store.state.change(ops, {key: self._number}) if self.live else Conflict(key, ABSENT, ABSENT)
        )

    def elect(self, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Become the leader `name` under a new epoch if nobody is."""
        key = leader_key(name)

        def work() -> Leadership | Conflict:
            if not self.live:
                return Conflict(key, ABSENT, ABSENT)
            done = self._store.state.change([Put(key, value, ABSENT)], {key: self._number})
            return done if isinstance(done, Conflict) else Leadership(name, key, done, self._store.raise_epoch())

        return self._store.write(work)

    def close(self) -> None:
        """End it now."""

        def work() -> None:
            self._store.state.sessions.pop(self._number, None)
            self._store.state.remove_orphans()

        if self in self._store.own:
            self._store.own.remove(self)
            self._store.write(work)
