"""The fold over a queue's entries: same state live, at recovery and in the splitter."""

from __future__ import annotations

import msgspec
import pytest

from cairnmq.codec.batch import set_offset_and_epoch
from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.files.format import ProducerRow, QueueRow
from cairnmq.storage.queue.state import QueueState


def batch(base: int, count: int, epoch: int, sequence: int = -1) -> bytes:
    records = [Record(offset=0, timestamp=50 + n, key=None, value=b"v") for n in range(count)]
    pid = 4 if sequence >= 0 else -1
    data = bytearray(build_batch(records, producer_id=pid, producer_epoch=min(pid, 0), base_sequence=sequence))
    set_offset_and_epoch(data, base, epoch)
    return bytes(data)


def filled() -> QueueState:
    """0-4 in epoch 1, 5-6 in epoch 3, 7-9 in epoch 6."""
    state = QueueState()
    assert state.apply_batch(batch(0, 5, 1), 0) == (0, 54)
    state.apply_batch(batch(5, 2, 3), 0)
    state.apply_batch(batch(7, 1, 6), 0)
    state.apply_batch(batch(8, 2, 6), 0)
    return state


def test_end_and_epochs() -> None:
    state = filled()
    assert (state.end, state.epochs) == (10, [(1, 0), (3, 5), (6, 7)])


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 0)), (1, (1, 5)), (2, (1, 5)), (3, (3, 7)), (5, (3, 7)), (6, (6, 10)), (7, (6, 10)), (8, (8, 10))],
)
def test_epoch_end(epoch: int, answer: tuple[int, int]) -> None:
    assert filled().epoch_end(epoch, 8, 10) == answer


def test_epoch_end_of_the_unknown() -> None:
    assert filled().epoch_end(9, 8, 10) == (-1, -1)
    assert QueueState().epoch_end(3, 8, 0) == (-1, -1)


@pytest.mark.parametrize(
    ("offset", "epochs"),
    [
        (3, [(1, 3), (3, 5), (6, 7)]),
        (5, [(3, 5), (6, 7)]),
        (6, [(3, 6), (6, 7)]),
        (10, [(6, 10)]),
    ],
)
def test_a_moved_start_forgets_epochs(offset: int, epochs: list[tuple[int, int]]) -> None:
    state = filled()
    state.move_start(offset)
    assert (state.log_start, state.end, state.epochs) == (offset, 10, epochs)


def test_the_start_never_falls() -> None:
    state = filled()
    state.move_start(6)
    state.move_start(2)
    assert state.log_start == 6


def test_a_start_moved_before_or_after_a_batch_gives_the_same() -> None:
    """Live state moves the start when the fact is written, although later batches were folded in already."""
    one, other = filled(), filled()
    one.apply_batch(batch(10, 1, 9), 0)
    one.move_start(10)
    other.move_start(10)
    other.apply_batch(batch(10, 1, 9), 0)
    assert one == other
    assert one.epochs == [(9, 10)]


def test_taking_back_a_batch_that_began_an_epoch() -> None:
    state = filled()
    epochs = state.epochs.copy()
    state.apply_batch(batch(10, 4, 9), 0)
    state.move_start(8)  # written meanwhile
    state.take_back(10, epochs)
    expected = filled()
    expected.move_start(8)
    assert state == expected


def test_rows_keep_everything() -> None:
    state = filled()
    state.apply_batch(batch(10, 2, 6, sequence=5), 1234)
    state.move_start(4)
    row = state.to_row(8, 3, 1000)
    assert row.queue_id == 8
    assert QueueState.from_row(row) == state
    assert QueueState.from_row(row).producers[4].batches == ((5, 6, 10),)


def test_rows_without_transactions() -> None:
    old = msgspec.msgpack.encode([8, 2, 12, [[1, 0]], [[4, 0, 1234, [[5, 6, 10]]]], [[0, 0], [3, 1]], 1000])
    state = QueueState.from_row(msgspec.msgpack.decode(old, type=QueueRow))
    assert (state.log_start, state.end, state.epochs, state.aborted) == (2, 12, [(1, 0)], [])
    assert state.producers == {4: ProducerRow(4, 0, 1234, ((5, 6, 10),), -1, -1)}
    assert state.transactions is None
