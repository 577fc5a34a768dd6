"""Idempotent producers: accept, duplicate, gap, fence."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.queue.producers import SEQUENCE_MAX, Duplicate, after, check, live


def stored(*batches: tuple[int, int, int], epoch: int = 2) -> object:
    """(first sequence, count, offset) each."""
    known = None
    for first, count, offset in batches:
        known = after(known, 7, epoch, first, count, offset, 1000)
    return known


def refusal(verdict: object) -> ErrorCode:
    assert isinstance(verdict, Refusal)
    return verdict.code


KNOWN = stored((0, 3, 100), (3, 1, 110), (4, 2, 120))


def test_the_next_sequence_is_taken() -> None:
    assert check(KNOWN, 2, 6, 4) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "count", "offset"), [(0, 3, 100), (3, 1, 110), (4, 2, 120)])
def test_a_duplicate_gets_the_old_offset(first: int, count: int, offset: int) -> None:
    assert check(KNOWN, 2, first, count) == Duplicate(offset)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [5, 7, 0, 100])
def test_gaps_and_half_duplicates_are_refused(first: int) -> None:
    assert refusal(check(KNOWN, 2, first, 9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # type: ignore[arg-type]


def test_an_older_epoch_is_fenced() -> None:
    assert refusal(check(KNOWN, 1, 6, 1)) == ErrorCode.INVALID_PRODUCER_EPOCH  # type: ignore[arg-type]


def test_a_new_epoch_begins_at_zero() -> None:
    assert check(KNOWN, 3, 0, 1) is None  # type: ignore[arg-type]
    assert refusal(check(KNOWN, 3, 6, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # type: ignore[arg-type]
    row = after(KNOWN, 7, 3, 0, 1, 200, 1000)  # type: ignore[arg-type]
    assert row.batches == ((0, 0, 200),)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert check(None, 0, 55, 1) is None


def test_sequences_wrap() -> None:
    known = stored((SEQUENCE_MAX - 1, 4, 10))
    assert known.batches == ((SEQUENCE_MAX - 1, 1, 10),)  # type: ignore[attr-defined]
    assert check(known, 2, 2, 1) is None  # type: ignore[arg-type]
    assert check(known, 2, SEQUENCE_MAX - 1, 4) == Duplicate(10)  # type: ignore[arg-type]


def test_five_batches_are_kept() -> None:
    known = stored(*((n, 1, n) for n in range(7)))
    assert [batch[0] for batch in known.batches] == [2, 3, 4, 5, 6]  # type: ignore[attr-defined]
    assert check(known, 2, 2, 1) == Duplicate(2)  # type: ignore[arg-type]
    assert refusal(check(known, 2, 1, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # type: ignore[arg-type]


def test_silent_producers_expire() -> None:
    row = after(None, 1, 0, 0, 1, 0, 1000)
    assert live({1: row}, 1999, 1000) == {1: row}
    assert live({1: row}, 2000, 1000) == {}
