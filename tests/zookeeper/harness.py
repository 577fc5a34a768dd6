"""How the conformance suite opens the ZooKeeper store and lets time pass: the time is real, but shorter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from kazoo.client import KazooClient

from broker_process import wait_until
from cairnmq.errors import Unreachable
from cairnmq.metadata.store import Away, MetadataStore, Session
from cairnmq.metadata.zookeeper import ZookeeperStore
from cairnmq.metadata.zookeeper_address import parse_zookeeper
from unit.metadata.conformance import TIMEOUT_MS
from unit.metadata.second_process import SecondProcess, SecondStore
from zookeeper.passages import Passages
from zookeeper.servers import Servers

SECONDS = 60.0  # only a failure uses it up
WAIT_MS = 1000
SESSION_MS = 4000  # a server that starts slowly finds the sessions alive
SHORTER = TIMEOUT_MS / (SESSION_MS / 2)  # after half of the time the watchdog ends what nobody renews

_numbers = count(1)


class ZookeeperHarness:
    """Each has a path of its own. The store's way leads through passages, that of the second process does not."""

    def __init__(self, servers: Servers, second: SecondProcess) -> None:
        self.servers = servers
        self.passages = Passages(servers.addresses)
        self.path = f"/tests/{next(_numbers)}"
        self._second = second
        self._stores: list[ZookeeperStore] = []
        self._beside: list[SecondStore] = []
        self._sessions: list[Session] = []

    def url(self, addresses: list[str] | None = None) -> str:
        return f"zookeeper://{','.join(addresses or self.passages.addresses)}{self.path}"

    def open(self) -> ZookeeperStore:
        store = ZookeeperStore(parse_zookeeper(self.url()), wait_ms=WAIT_MS)
        self._stores.append(store)
        return store

    def reopen(self, store: MetadataStore) -> ZookeeperStore:
        """Nothing is closed in order: ZooKeeper notices by itself."""
        assert isinstance(store, ZookeeperStore)
        self.passages.refuse()
        self._stores.remove(store)
        store.close()
        self.passages.accept()
        self._sessions = []
        self.wait_sessions(0)
        return self.open()

    def beside(self, store: MetadataStore) -> SecondStore:
        self._beside.append(self._second.open_zookeeper(self.url(self.servers.addresses), WAIT_MS))
        return self._beside[-1]

    def session(self, store: MetadataStore) -> Session:
        session = store.session(SESSION_MS)
        assert not isinstance(session, Away), session
        self._sessions.append(session)
        return session

    def look(self, store: MetadataStore) -> None:
        assert isinstance(store, ZookeeperStore)
        wait_until(store.nodes.stale.is_set, SECONDS, "word from ZooKeeper")
        store.look()

    def pass_ms(self, ms: int, *renewed: Session) -> None:
        """If it is a whole session's time, until the others have ended."""
        kept = list(renewed)
        until = time.monotonic() + ms / SHORTER / 1000
        while time.monotonic() < until:
            self._renew(kept)
        if ms >= TIMEOUT_MS:
            self._until(lambda: not any(each.live for each in self._sessions if each not in kept), kept)
            self._until_heard(kept)

    def _until_heard(self, kept: list[Session]) -> None:
        """A session's owner may know that it has ended before ZooKeeper does, and before other processes do."""
        with self.asked() as client:
            self._until(lambda: len(client.get_children(f"{self.path}/sessions")) == len(kept), kept)
        for store in self._stores:
            with suppress(Unreachable):
                store.get("live/nobody")  # a synced read: word of all changes comes before its response
                store.look()

    def stand_still(self, ms: int) -> None:
        """Owners ask for their sessions, and are told that ZooKeeper is away."""
        until = time.monotonic() + ms / SHORTER / 1000
        while time.monotonic() < until:
            for session in self._sessions:
                session.renew()
            time.sleep(SESSION_MS / 20_000)

    @contextmanager
    def away(self, store: MetadataStore) -> Iterator[None]:
        """All servers are killed."""
        self.servers.kill()
        self.wait(lambda: isinstance(store.put("k/away", b""), Away), "the servers are gone")
        try:
            yield
        finally:
            self.servers.launch()
            self.wait_back(store)
            self.servers.wait_ready()

    @contextmanager
    def in_doubt(self, store: MetadataStore, *, made: bool) -> Iterator[None]:
        self.passages.loses = made
        try:
            yield
        finally:
            self.passages.accept()
            self.wait_back(store)

    def wait_back(self, store: MetadataStore) -> None:
        """Until it can be asked again, and its sessions too. Nothing is read that would end a doubt."""
        assert isinstance(store, ZookeeperStore)

        def is_back() -> bool:
            away = [each for each in self._sessions if isinstance(each.renew(), Away)]
            return store.nodes.fetch([]) == [] and not away

        self.wait(is_back, "the store and its sessions")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            with suppress(Unreachable):
                return condition()
            return False

        wait_until(holds, SECONDS, what)

    def wait_sessions(self, left: int) -> None:
        """Until ZooKeeper has so many."""
        with self.asked() as client:
            place = f"{self.path}/sessions"
            wait_until(lambda: len(client.get_children(place)) == left, SECONDS, f"{left} sessions in ZooKeeper")

    @contextmanager
    def asked(self) -> Iterator[KazooClient]:
        """ZooKeeper without the store."""
        client = KazooClient(",".join(self.servers.addresses))
        client.start(SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def close(self) -> None:
        for store in self._stores:
            store.close()
        for beside in self._beside:
            beside.close()
        self.passages.close()

    def _renew(self, kept: list[Session]) -> None:
        for session in kept:
            assert session.renew() is True
        time.sleep(SESSION_MS / 20_000)

    def _until(self, condition: Callable[[], bool], kept: list[Session]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, "sessions that nobody renews do not end"
            self._renew(kept)
