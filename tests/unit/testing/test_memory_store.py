"""The store in memory passes the suite of all stores: what runs on it meets what it would meet on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cairnmq.metadata.store import Away, Compacted, MetadataStore, Session, Watch
from cairnmq.testing.memory_store import MemoryState, MemoryStore
from unit.metadata.conformance import TIMEOUT_MS, StoredSessionConformance, done


class MemoryHarness:
    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._state = MemoryState(lambda: self._now_ms)
        self._keeper: Session | None = None

    def open(self) -> MemoryStore:
        self._keeper = None
        return MemoryStore(self._state)

    def reopen(self, store: MetadataStore) -> MemoryStore:
        self._state.sessions.clear()
        return self.open()

    def beside(self, store: MetadataStore) -> MemoryStore:
        return MemoryStore(self._state)

    def session(self, store: MetadataStore) -> Session:
        session = store.session(TIMEOUT_MS)
        assert not isinstance(session, Away)
        return session

    def look(self, store: MetadataStore) -> None:
        store.look()

    def pass_ms(self, ms: int, *renewed: Session) -> None:
        self._keeper = self._keeper or self.session(MemoryStore(self._state))
        until = self._now_ms + ms
        while self._now_ms < until:
            self._now_ms = min(until, self._now_ms + TIMEOUT_MS // 3)
            for session in (self._keeper, *renewed):
                assert session.renew() is True

    def stand_still(self, ms: int) -> None:
        self._now_ms += ms

    @contextmanager
    def away(self, store: MetadataStore) -> Iterator[None]:
        assert isinstance(store, MemoryStore)
        store.away = True
        yield
        store.away = False

    @contextmanager
    def in_doubt(self, store: MetadataStore, *, made: bool) -> Iterator[None]:
        assert isinstance(store, MemoryStore)
        store.loses = made
        yield
        store.loses = None


class TestMemory(StoredSessionConformance):
    """The suite, with several processes on one state."""

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


def test_the_protocol_is_met() -> None:
    opened = MemoryStore(MemoryState(lambda: 0))
    store: MetadataStore = opened
    watch: Watch = opened.watch(0)
    session = opened.session(1)
    assert not isinstance(session, Away)
    alive: Session = session
    assert store.revision == 0 and watch.poll() == [] and alive.live


def test_history_is_cut_and_says_so() -> None:
    store = MemoryStore(MemoryState(lambda: 0, history=8))
    watch = store.watch(0)
    for number in range(20):
        done(store.put("k/a", b"%d" % number))
    assert watch.poll() == Compacted(12)
    assert len(store.state.history) == 8
