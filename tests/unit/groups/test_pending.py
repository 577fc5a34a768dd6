"""Offsets inside transactions: which of several commits of one queue counts in the end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cairnmq.decision import KeyedRecord
from cairnmq.groups.offsets import SPACE, Committed, OffsetKey, Offsets
from cairnmq.groups.pending import EndLimit, Pending, PendingKey, PendingOffsets

TOPIC = b"t" * 16


class Store:
    def __init__(self) -> None:
        self.offsets, self.pending = Offsets(), PendingOffsets()

    def apply(self, facts: Iterable[KeyedRecord]) -> None:
        for fact in facts:
            (self.offsets if fact[0] == SPACE else self.pending).apply(fact)

    def hold(
        self, offset: int, producer: int = 7, now_ms: int = 0, producer_epoch: int = -1, coordinator_epoch: int = -1
    ) -> None:
        key = PendingKey("g", producer, TOPIC, 0)
        value = Pending(offset, commit_ms=now_ms, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch)
        self.apply([self.pending.hold(key, value, self.offsets)])

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


def test_an_end_takes_offsets_of_its_transaction_only() -> None:
    store = Store()
    store.hold(100, producer_epoch=4)
    for limit in (EndLimit(3, False, 9), EndLimit(4, True, 9)):
        assert not store.pending.end("g", 7, commit=True, offsets=store.offsets, limit=limit), "a later one is open"
    for limit in (EndLimit(4, False, 9), EndLimit(5, True, 9)):
        facts = store.pending.end("g", 7, commit=True, offsets=store.offsets, limit=limit)
        assert len(facts) == 2
    store.apply(facts)
    found = store.offsets.get("g", TOPIC, 0)
    assert type(found) is Committed and found.offset == 100


def test_an_earlier_coordinator_ends_nothing() -> None:
    store = Store()
    store.hold(100, producer_epoch=4, coordinator_epoch=9)
    assert store.pending.fences("g", 7, EndLimit(4, False, 8))
    assert not store.pending.end("g", 7, commit=True, offsets=store.offsets, limit=EndLimit(4, False, 8))
    assert not store.pending.fences("g", 7, EndLimit(4, False, 9))
    assert store.pending.end("g", 7, commit=True, offsets=store.offsets, limit=EndLimit(4, False, 10))


def test_what_earlier_versions_stored_any_end_takes() -> None:
    store = Store()
    value = msgspec.msgpack.encode(Committed(100))
    store.apply([("pending", msgspec.msgpack.encode(PendingKey("g", 7, TOPIC, 0)), value)])
    assert store.pending.end("g", 7, commit=True, offsets=store.offsets, limit=EndLimit(0, False, 0))


def test_earlier_versions_read_what_is_stored_now() -> None:
    store = Store()
    key = PendingKey("g", 7, TOPIC, 0)
    _, _, value = store.pending.hold(key, Pending(100, producer_epoch=4, coordinator_epoch=9), store.offsets)
    assert value is not None
    assert msgspec.msgpack.decode(value, type=Committed).offset == 100
