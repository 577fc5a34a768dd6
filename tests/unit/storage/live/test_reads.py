"""What a read returns: batches, not cached, or a refusal."""

from __future__ import annotations

from typing import cast

import pytest

from cairnmq.codec.batch import only_empty
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.live import reads
from cairnmq.storage.live.reads import Batches
from unit.storage.live.test_kept_offsets import kept
from unit.storage.splitter_harness import NOW, Broker


def with_gap(gap: int) -> Broker:
    """Queue 1: one empty batch for offsets 0 to `gap`, then three records."""
    broker = Broker()
    broker.engine.appends.append_kept(broker.engine.queues[1], [kept(gap)], Span(0, gap + 3), NOW)
    broker.flush()
    return broker


@pytest.mark.parametrize("split", [False, True])
def test_empty_batches_never_come_alone(split: bool) -> None:
    broker = with_gap(7)
    if split:
        broker.split()
    queue = broker.engine.queues[1]
    read = broker.engine.reads.read(queue, 0, 1, whole=True, cached=False)
    assert isinstance(read, Batches) and read.next_offset == 10
    assert read.size == sum(map(len, read.buffers)) and not all(map(only_empty, read.buffers))


def test_read_batch_returns_an_empty_one() -> None:
    broker = with_gap(7)
    read = broker.engine.reads.read_batch(broker.engine.queues[1], 3, cached=False)
    assert isinstance(read, Batches) and read.next_offset == 7
    assert len(read.buffers) == 1 and only_empty(read.buffers[0])


def test_next_batch_that_does_not_fit_is_left_out() -> None:
    broker = with_gap(7)
    read = broker.engine.reads.read(broker.engine.queues[1], 7, 1, whole=False, cached=False)
    assert isinstance(read, Batches) and (read.buffers, read.size, read.next_offset) == ([], 0, 7)


def test_offset_outside_of_the_queue_is_refused() -> None:
    broker = Broker()
    broker.put(1)
    read = broker.engine.reads.read(broker.engine.queues[1], 9, 100, whole=True, cached=True)
    assert isinstance(read, Refusal) and read.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_committed_read_has_the_aborted_transactions() -> None:
    broker = Broker()
    row = broker.abort(1, 7)
    queue = broker.engine.queues[1]
    found = broker.engine.reads.read(queue, 0, 1000, whole=True, cached=False, committed=True)
    assert isinstance(found, Batches) and found.aborted == [row]
    found = broker.engine.reads.read(queue, 0, 1000, whole=True, cached=False)
    assert isinstance(found, Batches) and not found.aborted


def test_not_cached_is_loaded_and_read_again() -> None:
    broker = Broker("dedicated")
    broker.put(1, 1)
    broker.split()
    queue = broker.engine.queues[1]
    read = broker.engine.reads.read(queue, 1, 1000, whole=True, cached=True)
    loads = 0
    while isinstance(read, NotCached):
        read.load()
        loads += 1
        read = broker.engine.reads.read(queue, 1, 1000, whole=True, cached=True)
    assert loads and isinstance(read, Batches) and read.next_offset == 2


def test_rows_of_aborted_transactions_that_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the batches do not come either: a reader must not take records of an aborted transaction for others."""
    broker = Broker()
    broker.abort(1, 7)
    waits = NotCached(lambda: None)
    monkeypatch.setattr(reads.Reads, "aborted", lambda *_, **__: waits)
    queue = broker.engine.queues[1]
    found = broker.engine.reads.read(queue, 0, 1000, whole=True, cached=True, committed=True)
    assert cast(object, found) is waits
