"""A live queue: what its split end may be."""

from __future__ import annotations

import pytest

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState


def queue_at(split: int, visible: int) -> Queue:
    queue = Queue(QueueSpec(1, "orders", 0, bytes(16), LogConfig()), QueueState(end=visible))
    queue.split_end = split
    return queue


def test_split_end_follows_the_rounds() -> None:
    queue = queue_at(split=3, visible=9)
    queue.split_to(5)
    queue.split_to(9)
    assert queue.split_end == 9


@pytest.mark.parametrize("end", [2, 10], ids=["back", "past_visible"])
def test_other_split_ends_are_a_defect(end: int) -> None:
    with pytest.raises(AssertionError):
        queue_at(split=3, visible=9).split_to(end)
