"""Transactions expect revisions and epochs; the same for all stores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.metadata.expectations import agreed
from cairnmq.metadata.store import ABSENT, EPOCH, Check, Conflict, Delete, NextEpoch, Op, Put
from cairnmq.types import Epoch

THERE = {"a": 4, "b": 7}
LAST = 9


def asked(*ops: Op | NextEpoch) -> tuple[list[Op], int | None] | Conflict:
    return agreed(ops, lambda key: THERE.get(key, ABSENT), lambda: LAST)


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Put("a", b"", 4), Delete("b", 7), Check("c", ABSENT)],
        [Put("a", b""), Delete("c")],
        [Put("c", b"", ABSENT)],
    ],
)
def test_what_is_as_it_was_expected(ops: Sequence[Op]) -> None:
    assert asked(*ops) == (list(ops), None)


@pytest.mark.parametrize(
    ("ops", "conflict"),
    [
        ([Put("a", b"", 3)], Conflict("a", 3, 4)),
        ([Put("a", b"", ABSENT)], Conflict("a", ABSENT, 4)),
        ([Put("a", b"", 4), Delete("c", 1), Check("b", 1)], Conflict("c", 1, ABSENT)),
        ([NextEpoch(Epoch(10)), Check("b", 6)], Conflict("b", 6, 7)),
    ],
)
def test_the_first_that_is_not(ops: Sequence[Op | NextEpoch], conflict: Conflict) -> None:
    assert asked(*ops) == conflict


def test_epochs_follow_one_another() -> None:
    put = Put("a", b"")
    assert asked(NextEpoch(Epoch(10)), put) == ([put], 10)
    assert asked(NextEpoch(Epoch(10)), NextEpoch(Epoch(11))) == ([], 11)
    assert asked(NextEpoch(Epoch(11))) == Conflict(EPOCH, 10, 9)
    assert asked(NextEpoch(Epoch(10)), NextEpoch(Epoch(10))) == Conflict(EPOCH, 9, 10)


def test_a_key_that_is_named_twice() -> None:
    with pytest.raises(AssertionError, match="twice"):
        asked(Put("a", b""), Check("a", 4))
