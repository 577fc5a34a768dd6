"""Offsets inside transactions: which of several commits of one queue counts in the end."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.decision import KeyedRecord
from cairnmq.groups.offsets import SPACE, Committed, OffsetKey, Offsets
from cairnmq.groups.pending import PendingKey, PendingOffsets

TOPIC = b"t" * 16


class Store:
    def __init__(self) -> None:
        self.offsets, self.pending = Offsets(), PendingOffsets()

    def apply(self, facts: Iterable[KeyedRecord]) -> None:
        for fact in facts:
            (self.offsets if fact[0] == SPACE else self.pending).apply(fact)

    def hold(self, offset: int, producer: int = 7, now_ms: int = 0) -> None:
        key = PendingKey("g", producer, TOPIC, 0)
        self.apply([self.pending.hold(key, Committed(offset, commit_ms=now_ms), self.offsets)])

    def commit(self, offset: int, now_ms: int = 0) -> None:
        key = OffsetKey("g", TOPIC, 0)
        self.apply([self.pending.commit(key, Committed(offset, commit_ms=now_ms), self.offsets)])

    def end(self, producer: int = 7, *, commit: bool = True) -> int | None:
        self.apply(self.pending.end("g", producer, commit=commit, offsets=self.offsets))
        found = self.offsets.get("g", TOPIC, 0)
        return found.offset if found is not None else None


def test_a_clock_that_is_set_back_takes_no_commit_away() -> None:
    store = Store()
    store.hold(100, now_ms=1_000_500)
    assert store.end() == 100
    store.hold(200, now_ms=1_000_200)
    assert store.end() == 200
    store.commit(300, now_ms=900_000)
    store.hold(400, now_ms=800_000)
    assert store.end() == 400


def test_a_later_commit_outside_stays() -> None:
    store = Store()
    store.hold(100, now_ms=5)
    store.commit(50, now_ms=1)
    assert store.end() == 50
    store.hold(60)
    assert store.end() == 60


def test_of_two_transactions_the_one_that_committed_its_offset_later_counts() -> None:
    store = Store()
    store.hold(100, producer=1)
    store.hold(200, producer=2)
    assert store.end(producer=2) == 200
    assert store.end(producer=1) == 200
    store.hold(300, producer=1)
    store.hold(400, producer=2)
    store.hold(500, producer=1)
    assert store.end(producer=1) == 500
    assert store.end(producer=2) == 500


def test_an_aborted_one_counts_for_nothing() -> None:
    store = Store()
    store.hold(100)
    assert store.end(commit=False) is None
    assert not store.pending.holds("g")


def test_without_transactions_nothing_is_counted() -> None:
    """So that a plain commit stays as small as it was."""
    store = Store()
    store.commit(1)
    store.commit(2)
    present = store.offsets.get("g", TOPIC, 0)
    assert present is not None and present.order == 0
