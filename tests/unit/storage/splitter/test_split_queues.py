"""The queues that a splitter has met."""

from __future__ import annotations

import pytest

from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.splitter import split_queues
from cairnmq.storage.splitter.splitter import Splitter
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_successor_asks_for_many_queues_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.put(1, 2, 3)
    broker.put(3, 2, 1)
    broker.split()
    asked: list[list[int]] = []
    resolve = broker.splitter.specs
    successor = Splitter(
        broker.journal_disk,
        broker.read_disk,
        load_checkpoint(broker.read_disk),
        lambda ids: asked.append(ids) or resolve(ids),  # type: ignore[func-returns-value]
        journals=[0],
        resume=broker.splitter.resume(),
    )
    monkeypatch.setattr(split_queues, "LEARNED_AT_ONCE", 2)
    successor.replay(NOW)
    assert asked == [[1, 2], [3]]
    assert successor.positions == broker.splitter.positions


def test_a_deleted_queue_is_counted_out_once(broker: Broker) -> None:
    """Its order, and looks at directories and packs, may all say that it is deleted."""
    broker.put(1, 2)
    broker.split()
    broker.checkpoint()
    queues = broker.splitter._queues
    assert queues.segmented == 2
    spec = broker.specs.pop(1)
    for _ in range(2):
        broker.splitter.drop([(1, spec.directory)])
    assert (queues.segmented, queues.deleted) == (1, {1})
    assert broker.splitter.learn(1) is None
    assert broker.splitter.reclaim.deleted_rows() == [1]
