"""The metadata store in ZooKeeper, for brokers of any machines (docs/adr/0029-zookeeper.md)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from cairnmq.errors import Unreachable
from cairnmq.metadata import zookeeper_tree as tree
from cairnmq.metadata.machine_clock import boot_ms
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Change,
    Compacted,
    Conflict,
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
from cairnmq.metadata.zookeeper_address import ZookeeperAddress
from cairnmq.metadata.zookeeper_doubts import Doubts
from cairnmq.metadata.zookeeper_nodes import ZookeeperNodes, entries_of
from cairnmq.metadata.zookeeper_session import ZookeeperSession
from cairnmq.metadata.zookeeper_tree import Found, Plan, Root
from cairnmq.types import Epoch

WAIT_MS = 1000
START_MS = 15_000
_ATTEMPTS = 1000
_LOST_RACES = 5
_PAUSE_MS_MAX = 20
_READS = 100


class ZookeeperStore:
    """`clock` is that of sessions: of this machine alone, ZooKeeper has its own.

    Every change is one transaction that sets `rev` at the version that was read. So changes have one order, whoever
    makes them, and a change whose response was lost is the one that led from this version to the next, or is none."""

    def __init__(
        self,
        address: ZookeeperAddress,
        *,
        wait_ms: int = WAIT_MS,
        start_ms: int = START_MS,
        clock: Callable[[], int] = boot_ms,
    ) -> None:
        self.address = address
        self.nodes = ZookeeperNodes(address, clock, wait_ms, start_ms)
        self._doubts = Doubts(secrets.token_hex(8))
        self._sessions: list[ZookeeperSession] = []
        try:
            self._watches = StoreWatches(self.changes, self.revision)
        except BaseException:
            self.nodes.close()
            raise

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._root().revision

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given, 0 if none was."""
        return Epoch(self._root().epoch)

    def get(self, key: str) -> Entry | None:
        """One entry."""
        return self.nodes.alive(self.nodes.read([key])).get(key)

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, by key."""
        place, has_buckets = tree.prefix_places(prefix)
        places = [f"{place}/{bucket}" for bucket in self.nodes.names([place])] if has_buckets else [place]
        keys = [tree.key_of(prefix, name) for name in self.nodes.names(places)]
        found = self.nodes.alive(self.nodes.read(keys))
        return [found[key] for key in sorted(found)]

    def _root(self) -> Root:
        seen, _ = self.nodes.root()
        self._doubts.settle(seen.root, seen.version)
        return seen.root

    # ------------------------------------------------------------------------------------------------------ changes

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict | Away | InDoubt:
        """Set one key; its new revision."""
        return self.transact([Put(key, value, expect)])

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """All or nothing; the revision that all changed keys now have."""
        made = self._change(tree.named(ops), lambda found: tree.plan(found, ops))
        return made.revision if isinstance(made, Root) else made

    def next_epoch(self, above: int = 0) -> Epoch | Away:
        """One more than any epoch before, and than `above`."""

        def decide(found: Found) -> Plan:
            return Plan(replace(found.root, epoch=tree.next_epoch(found.root, above)))

        made = self._change([], decide)
        return Epoch(made.epoch) if isinstance(made, Root) else _away(made)

    def raise_revision(self, revision: int) -> Away | None:
        """No later change has this revision or a lower one."""

        def decide(found: Found) -> Plan:
            return Plan(replace(found.root, revision=max(found.root.revision, revision)))

        made = self._change([], decide)
        return None if isinstance(made, Root) else _away(made)

    def _change(
        self, keys: Sequence[str], decide: Callable[[Found], Plan | Conflict]
    ) -> Root | Conflict | Away | InDoubt:
        """One transaction, decided again whenever somebody else was faster."""
        for attempt in range(_ATTEMPTS):
            try:
                found, version = self.nodes.found(keys)
                self._doubts.settle(found.root, version)
                made = decide(found)
                if isinstance(made, Conflict):
                    return made
                if made.same:
                    return found.root
                self.nodes.make_directories(tree.checked(made))
            except Unreachable as error:
                return Away(str(error))
            root = tree.signed(made.root, self._doubts.writer, self._doubts.next_number())
            try:
                if self.nodes.write(root, version, made):
                    self._doubts.settle(root, version + 1)
                    self._watches.notice(root.revision)
                    return root
            except Unreachable as error:
                return self._doubts.add(version, str(error))
            if attempt > _LOST_RACES:
                self.nodes.forget_directories()
            time.sleep(secrets.randbelow(1 + min(attempt, _PAUSE_MS_MAX)) / 1000)
        return Away(f"{self.address}: others change the metadata all the time")

    def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
        """What became of a change. While nobody has changed anything since, it may still arrive: then `rev` is written
        as it is, and the change finds another version."""
        try:
            while self._doubts.is_open(doubt):
                seen, _ = self.nodes.root()
                self._doubts.settle(seen.root, seen.version)
                if self._doubts.is_open(doubt):
                    self.nodes.write(seen.root, seen.version)
        except Unreachable:
            return doubt
        outcome = self._doubts.outcome(doubt)
        assert outcome is not None
        if isinstance(outcome, Made):
            self._watches.notice(outcome.revision)
        return outcome

    # ----------------------------------------------------------------------------------------------------- watching

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> StoreWatch:
        """Changes with a larger revision."""
        return self._watches.open(from_revision, wake)

    def look(self) -> None:
        """Does nothing until ZooKeeper has told of a change. Keys of sessions that have ended are then removed."""
        stale = self.nodes.stale
        if not stale.is_set():
            return
        stale.clear()
        try:
            seen, _ = self.nodes.root()
            self._doubts.settle(seen.root, seen.version)
            if seen.root.dead(seen.live) and not isinstance(self.transact([]), int):
                stale.set()
        except BaseException:
            stale.set()  # for the next time
            raise
        self._watches.notice(seen.root.revision)

    def changes(self, after: int) -> tuple[Sequence[Change] | Compacted, int]:
        """What changed after a revision, and up to which: all as of one moment."""
        for _ in range(_READS):
            before, _ = self.nodes.root()
            changed = before.root.changed(after)
            if isinstance(changed, Compacted) or not changed:
                return changed if isinstance(changed, Compacted) else [], before.root.revision
            nodes = self.nodes.read(sorted(changed))
            seen, _ = self.nodes.root()
            if seen.version == before.version:
                return tree.news(changed, entries_of(nodes, seen.live)), seen.root.revision
        raise Unreachable(f"{self.address}: others change the metadata all the time")

    # ----------------------------------------------------------------------------------------------------- sessions

    def session(self, timeout_ms: int) -> ZookeeperSession | Away:
        """A new session that ends when it is not renewed in time. A Fault: ZooKeeper does not grant it so much time."""
        try:
            self.nodes.fetch([])  # says soon that ZooKeeper is away
            session = ZookeeperSession(self, secrets.token_hex(16), timeout_ms)
        except Unreachable as error:
            return Away(str(error))
        self._sessions.append(session)
        return session

    def held_until_ms(self, key: str) -> None:
        """ZooKeeper tells nobody when a session would end."""

    def register(self, session: str, put: Put, also: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """Set a session's key."""
        ops = [put, *also]

        def decide(found: Found) -> Plan | Conflict:
            if session not in found.live:
                return Conflict(put.key, ABSENT, ABSENT)
            return tree.plan(found, ops, hold=(put.key, session))

        made = self._change(tree.named(ops), decide)
        return made.revision if isinstance(made, Root) else made

    def elect(self, session: str, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Take the leader's key and a new epoch together."""
        key = leader_key(name)

        def decide(found: Found) -> Plan | Conflict:
            if session not in found.live:
                return Conflict(key, ABSENT, ABSENT)
            made = tree.plan(found, [Put(key, value, ABSENT)], hold=(key, session))
            return made if isinstance(made, Conflict) else tree.replace_epoch(made, tree.next_epoch(found.root, 0))

        made = self._change([key], decide)
        return Leadership(name, key, made.revision, Epoch(made.epoch)) if isinstance(made, Root) else made

    def forget(self, session: ZookeeperSession) -> None:
        """It has ended: what it registered goes at once, unless ZooKeeper is away."""
        if session in self._sessions:
            self._sessions.remove(session)
            self.nodes.stale.set()
            try:
                self.look()
            except Unreachable:
                return

    def close(self) -> None:
        """End this process's sessions and the connection."""
        try:
            for session in [*self._sessions]:
                session.close()
        finally:
            self.nodes.close()


def _away(answer: Conflict | Away | InDoubt) -> Away:
    """Of a change that expects nothing."""
    assert not isinstance(answer, Conflict), answer
    return Away(answer.reason)
