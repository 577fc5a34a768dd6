"""The nodes of the store as one process reads and writes them: each call is one round trip, and ends in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TypeAlias

from cairnmq.errors import Fault
from cairnmq.metadata import zookeeper_tree as tree
from cairnmq.metadata.store import Entry
from cairnmq.metadata.zookeeper_address import ZookeeperAddress
from cairnmq.metadata.zookeeper_link import Ask, ZookeeperLink
from cairnmq.metadata.zookeeper_tree import Found, Plan, Root

LINK_MS = 6_000
"""Of the connection for reading and writing. Nothing depends on its session."""

LONG_MS = 500
"""Whoever waits for a call that takes longer cannot renew a session meanwhile."""

Nodes: TypeAlias = dict[str, tuple[Entry, str]]
"""By key, with the session that each belongs to."""


class Seen(NamedTuple):
    """`rev` with its version, and the sessions that are alive."""

    root: Root
    version: int
    live: frozenset[str]


class ZookeeperNodes:
    """`stale` is set, on kazoo's threads, when somebody may have changed something. The watchdog of sessions reads
    `busy`, true while a call is under way, and `busy_until_ms`, when the last one ended that took long."""

    def __init__(self, address: ZookeeperAddress, clock: Callable[[], int], wait_ms: int, start_ms: int) -> None:
        self.address = address
        self.clock = clock
        self.stale = Event()
        self.busy = False
        self.busy_until_ms = 0
        self._wait_ms = wait_ms
        self._made: set[str] = set()  # directories that exist
        self._link = ZookeeperLink(address, LINK_MS, wait_ms, self.stale.set)
        self._link.start(start_ms)
        try:
            self._make_top()
        except BaseException:
            self._link.close()
            raise

    def close(self) -> None:
        """The connection; sessions have theirs."""
        self._link.close()

    def new_link(self, timeout_ms: int) -> ZookeeperLink:
        """For a session."""
        return ZookeeperLink(self.address, timeout_ms, self._wait_ms)

    @contextmanager
    def using(self) -> Iterator[None]:
        """Around everything that is asked of ZooKeeper."""
        self.busy, begun_ms = True, self.clock()
        try:
            yield
        finally:
            now_ms = self.clock()
            if now_ms - begun_ms > LONG_MS:
                self.busy_until_ms = now_ms
            self.busy = False

    def path(self, below: str) -> str:
        """As ZooKeeper knows it."""
        return f"{self.address.root}/{below}"

    # ------------------------------------------------------------------------------------------------------ reading

    def fetch(self, asks: Sequence[Ask]) -> list[Any]:
        """As all servers have agreed on it now: the one at hand may lag behind, and is brought up to date first."""
        path = self.path(tree.REV)
        with self.using():
            return self._link.fetch([lambda client: client.sync_async(path), *asks])[1:]

    def root(self, *asks: Ask) -> tuple[Seen, list[Any]]:
        """With what else is asked. Of what changes from here on `stale` tells."""
        found, live, *others = self.fetch([partial(_get, self.path(tree.REV), self._event), self._sessions, *asks])
        if found is None or live is None:
            raise Fault(f"{self.address}: nodes of CairnMQ were removed")
        return Seen(tree.decode_root(found[0]), found[1].version, frozenset(live)), others

    def _sessions(self, client: Any) -> Any:
        return client.get_children_async(self.path(tree.SESSIONS), watch=self._event)

    def _event(self, _: object) -> None:
        self.stale.set()

    def found(self, keys: Sequence[str]) -> tuple[Found, int]:
        """For a transaction that names these keys; with the version of `rev`."""
        seen, nodes = self.root(*map(self._ask, keys))
        revisions = {key: entry.revision for key, (entry, _) in _decoded(keys, nodes).items()}
        return Found(seen.root, seen.live, revisions), seen.version

    def read(self, keys: Sequence[str]) -> Nodes:
        """Those that there are."""
        return _decoded(keys, self.fetch(list(map(self._ask, keys)))) if keys else {}

    def alive(self, nodes: Nodes) -> dict[str, Entry]:
        """Without keys of sessions that have ended."""
        live = frozenset[str]()
        if any(session for _, session in nodes.values()):
            live = self.root()[0].live
        return entries_of(nodes, live)

    def names(self, directories: Sequence[str]) -> list[str]:
        """Of all nodes in these directories."""
        asks = [partial(_children, self.path(each)) for each in directories]
        return [name for names in self.fetch(asks) for name in names or ()]

    def _ask(self, key: str) -> Ask:
        return partial(_get, self.path(tree.path_of(key)), None)

    # ------------------------------------------------------------------------------------------------------ writing

    def write(self, root: Root, version: int, made: Plan | None = None) -> bool:
        """`rev` at this version, with all that is planned, or nothing: False. Unreachable: nobody knows."""

        def operations(request: Any) -> None:
            request.set_data(self.path(tree.REV), tree.encode_root(root), version)
            for session in sorted(made.needs) if made is not None else ():
                request.check(self.path(tree.session_path(session)), -1)
            for write in made.writes if made is not None else ():
                path = self.path(tree.path_of(write.key))
                if write.data is None:
                    request.delete(path)
                elif write.exists:
                    request.set_data(path, write.data)
                else:
                    request.create(path, write.data)

        with self.using():
            return self._link.commit(operations)

    def make_directories(self, made: Plan) -> None:
        """For what is planned. They stay, so that this is no part of the transaction."""
        wanted = {tree.directory_of(write.key) for write in made.writes if not write.exists}
        missing = sorted(wanted - self._made)
        levels = sorted({"/".join(each.split("/")[:count]) for each in missing for count in (2, 3)})
        with self.using():
            self._link.make([self.path(each) for each in levels])
        self._made |= wanted

    def forget_directories(self) -> None:
        """Perhaps a person removed one."""
        self._made.clear()

    def _make_top(self) -> None:
        """Asks first: who may use a node need not be allowed to make it."""
        levels = self.address.root.strip("/").split("/")
        parents = ["/" + "/".join(levels[: count + 1]) for count in range(len(levels))]
        wanted = [*parents, self.path(tree.KEYS), self.path(tree.SESSIONS), self.path(tree.REV)]
        with self.using():
            *found, others = self._link.fetch(
                [*(partial(_exists, path) for path in wanted), partial(_children, self.address.root)]
            )
            if foreign := sorted({*(others or ())} - {tree.KEYS, tree.SESSIONS, tree.REV}):
                raise Fault(
                    f"{self.address} has nodes of another program ({', '.join(foreign[:3])}): name another path"
                )
            for path in (path for path, stat in zip(wanted, found, strict=True) if stat is None):
                self._link.make([path], tree.encode_root(Root()) if path == wanted[-1] else b"")


def entries_of(nodes: Nodes, live: frozenset[str]) -> dict[str, Entry]:
    """Of sessions that are alive, and of none."""
    return {key: entry for key, (entry, session) in nodes.items() if not session or session in live}


def _decoded(keys: Sequence[str], found: Sequence[Any]) -> Nodes:
    pairs = zip(keys, found, strict=True)
    return {key: tree.decode_node(key, each[0]) for key, each in pairs if each is not None}


def _get(path: str, watch: Callable[[object], None] | None, client: Any) -> Any:
    return client.get_async(path, watch=watch)


def _children(path: str, client: Any) -> Any:
    return client.get_children_async(path)


def _exists(path: str, client: Any) -> Any:
    return client.exists_async(path)
