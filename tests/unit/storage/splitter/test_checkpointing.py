"""Checkpoints: what they hold, and what they allow."""

from __future__ import annotations

import pytest

from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.format import Keyed, KeyedRow
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_checkpoint_lets_the_journal_go(broker: Broker) -> None:
    for _ in range(10):
        broker.put(1, 2)
    broker.split()
    assert len(broker.journal_disk.list("0")) > 3
    broker.checkpoint()
    assert [name[-4:] for name in broker.journal_disk.list("0")] == [".jnl", "nced"]
    image = load_checkpoint(broker.read_disk)
    assert image.marks[0].split == broker.engine.split[0]
    assert image.queues[1].end == 10
    broker.start(2)
    assert broker.engine.scans[0].entries == 0
    assert broker.offsets(1) == list(range(10))


def test_keyed_facts_reach_the_checkpoint(broker: Broker) -> None:
    path = broker.engine.paths[0]
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        path.stage_fact(None, Keyed("offsets", key, value), NOW)
    broker.flush()
    broker.split()
    broker.checkpoint()
    assert load_checkpoint(broker.read_disk).keyed == {("offsets", b"a"): KeyedRow(0, "offsets", b"a", b"3")}
