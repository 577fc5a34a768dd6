"""A demoted queue is in a pack; its directory stays until readers have heard of it."""

from __future__ import annotations

from cairnmq.storage.files.format import NO_SEGMENTS
from unit.storage.splitter_harness import NOW, Broker


def demoted() -> Broker:
    broker = Broker()
    broker.put(1, 2)
    broker.split()
    broker.checkpoint()
    broker.splitter.demote([broker.splitter.queues[1]])
    return broker


def test_the_directory_stays_until_the_checkpoint_was_seen() -> None:
    broker = demoted()
    splitter = broker.splitter
    assert splitter.queues[1].segments_from == NO_SEGMENTS and splitter.uncheckpointed
    published = splitter.checkpoint(NOW)
    assert [place.queue_id for place in published.moved] == [1]
    assert "t-1" in broker.read_disk.list("queues")
    broker.engine.on_checkpoint(published)
    assert broker.offsets(1) == [0]
    splitter.seen(published.serial)
    assert broker.read_disk.list("queues") == ["t-2"]
    assert broker.offsets(1) == [0] and broker.offsets(2) == [0]


def test_a_damaged_queue_is_not_demoted() -> None:
    broker = Broker()
    broker.put(1)
    broker.split()
    broker.checkpoint()
    broker.read_disk.damage("queues/t-1/00000000000000000000.log", 70)
    broker.splitter.demote([broker.splitter.queues[1]])
    assert broker.splitter.queues[1].segments_from == 0 and not broker.splitter.uncheckpointed
