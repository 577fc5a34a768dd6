"""Rows and records of a queue's replicas: what may differ between them, and what may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cairnmq.storage.check.queue_comparison import FORGOTTEN_AFTER_MS
from cairnmq.storage.files.format import ProducerRow, QueueRow
from unit.storage.compaction_harness import Room
from unit.storage.comparison_harness import compared, filled, restate
from unit.storage.splitter_harness import NOW


def change(room: Room, alter: Callable[[QueueRow], QueueRow]) -> None:
    restate(room, lambda image: image.queues.update({1: alter(image.queues[1])}))


def producers(row: QueueRow, alter: Callable[[ProducerRow], ProducerRow]) -> QueueRow:
    return replace(row, producers=tuple(alter(producer) for producer in row.producers))


# Rows


def test_times_of_producers_may_differ() -> None:
    one, other = filled(), filled()
    change(other, lambda row: producers(row, lambda producer: replace(producer, timestamp=NOW + 5)))
    assert compared(one, other) == []


@pytest.mark.parametrize(
    ("alter", "text"),
    [
        (lambda row: replace(row, epochs=((2, 0),)), "b: queue 1: epochs ((2, 0),) in the checkpoint, ((1, 0),) in"),
        (
            lambda row: producers(row, lambda producer: replace(producer, epoch=3)),
            "b: queue 1: producer 7 with epoch 3,",
        ),
        (
            lambda row: producers(row, lambda producer: replace(producer, txn_start=4)),
            "open transaction from 4 in the checkpoint",
        ),
        (lambda row: replace(row, producers=()), "b: queue 1: producer 7 is not in the checkpoint; it is in that of a"),
        (
            lambda row: producers(row, lambda producer: replace(producer, batches=((0, 2, 2), *producer.batches[1:]))),
            "b: queue 1: producer 7 with epoch 0, batches ((0, 2, 2),",
        ),
    ],
)
def test_rows_at_one_split_position_are_equal(alter: Callable[[QueueRow], QueueRow], text: str) -> None:
    one, other = filled(), filled()
    change(other, alter)
    (line,) = compared(one, other)
    assert text in line and line.endswith(" a")


def test_ends_at_one_split_position_are_equal() -> None:
    one, other = filled(), filled()
    end = other.engine.queues[1].state.end
    change(other, lambda row: replace(row, end=end - 3))
    (line,) = compared(one, other)
    assert line == f"b: queue 1: end {end - 3} in the checkpoint, {end} in that of a"


def test_rows_at_other_split_positions_are_not_compared() -> None:
    assert compared(filled(turns=8), filled()) == []


def test_a_silent_producer_may_be_forgotten_by_one() -> None:
    one, other = filled(), filled()
    change(other, lambda row: replace(row, producers=()))
    old = NOW - FORGOTTEN_AFTER_MS - 1
    change(one, lambda row: producers(row, lambda producer: replace(producer, timestamp=old)))
    assert compared(one, other) == []


def test_a_producer_that_was_forgotten_and_came_back_has_fewer_batches() -> None:
    one, other = filled(), filled()
    change(other, lambda row: producers(row, lambda producer: replace(producer, batches=producer.batches[-1:])))
    assert compared(one, other) == []


def test_older_epochs_than_the_log_start_do_not_count() -> None:
    one, other = filled(), filled()
    change(one, lambda row: replace(row, epochs=((1, 0), (2, 4)), log_start=4))
    change(other, lambda row: replace(row, epochs=((2, 4),), log_start=4))
    assert compared(one, other) == []


# Records


def compacted(*pairs: tuple[str, str | None], rounds: int = 1, **config: object) -> Room:
    """Keys k0 to k4 in several segments, then `pairs`, compacted."""
    room = Room(**config)  # type: ignore[arg-type]
    room.send(("gone", "there"))
    for turn in range(6):
        room.fill(1, pad=30)
        if turn == 2:
            room.send(*(pairs or [("x", "1")]))
    if rounds:
        room.compact()
    return room


def test_one_that_compacts_and_one_that_does_not() -> None:
    eager, lazy = compacted(), compacted(rounds=0)
    assert len(eager.records()) < len(lazy.records())
    assert compared(eager, lazy) == compared(lazy, eager) == []


def test_one_that_is_behind_has_older_records_of_a_key() -> None:
    """Those took the place of records that the other has compacted away."""
    ahead = compacted()
    for _ in range(3):
        ahead.fill(1, pad=30)
    ahead.compact()
    assert compared(ahead, compacted()) == compared(compacted(), ahead) == []


def test_a_key_with_another_value_is_found_below_what_is_compacted() -> None:
    lines = compared(compacted(("x", "1")), compacted(("x", "2")))
    assert [line for line in lines if "the newest record of key b'x' is at offset" in line], lines


def test_a_key_that_one_has_lost_is_found() -> None:
    lines = compared(compacted(("x", "1")), compacted(("y", "1")))
    assert any("queue 1: the newest record of key b'" in line and "no record here" in line for line in lines), lines


def test_a_deletion_may_be_forgotten_but_not_undone() -> None:
    """One has the tombstone still, the other neither it nor the record; and one that has the record again."""
    kept, forgot = compacted(("gone", None)), compacted(("gone", None), delete_retention_ms=0)
    forgot.now = NOW + 10 * 24 * 3600 * 1000
    for _ in range(3):
        forgot.fill(1, pad=30)
        kept.fill(1, pad=30)
    forgot.compact()
    assert "gone" not in [key for _, key, _ in forgot.records()]
    assert "gone" in [key for _, key, _ in kept.records()]
    assert compared(kept, forgot) == compared(forgot, kept) == []
    undone = compacted(("other", None))
    lines = [line for line in compared(kept, undone) if "key b'gone'" in line]
    assert lines and lines[0].startswith("b/queues/t-1: ") and "one at 0 here" in lines[0]
