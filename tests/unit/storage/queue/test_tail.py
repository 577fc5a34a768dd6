"""The index of what is not split yet."""

from __future__ import annotations

import pytest

from cairnmq.storage.queue.tail import Tail


@pytest.fixture
def tail() -> Tail:
    tail = Tail()
    for offset, position, size, timestamp in ((10, 100, 50, 7), (12, 182, 60, 9), (15, 300, 10, 8)):
        tail.add(offset, position, size, timestamp)
    return tail


@pytest.mark.parametrize(("offset", "index"), [(9, -1), (10, 0), (11, 0), (12, 1), (14, 1), (15, 2), (99, 2)])
def test_find(tail: Tail, offset: int, index: int) -> None:
    assert tail.find(offset) == index


@pytest.mark.parametrize(("timestamp", "index"), [(0, 0), (7, 0), (8, 1), (9, 1), (10, 3)])
def test_find_time(tail: Tail, timestamp: int, index: int) -> None:
    assert tail.find_time(timestamp) == index


@pytest.mark.parametrize(("offset", "left"), [(10, [10, 12, 15]), (12, [12, 15]), (13, [15]), (16, [])])
def test_drop_below(tail: Tail, offset: int, left: list[int]) -> None:
    assert tail.drop_below(offset) == 3 - len(left)
    assert list(tail.offsets) == left
    assert len(tail) == len(tail.positions) == len(tail.sizes) == len(tail.timestamps) == len(left)
