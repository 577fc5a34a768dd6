"""Packs that the splitter writes, and those that it finds."""

from __future__ import annotations

from unit.storage.splitter_harness import Broker


def test_a_pack_counts_at_once_and_is_synced_by_the_next_checkpoint() -> None:
    broker = Broker("shared")
    broker.put(1, 2)
    broker.split()
    packs = broker.splitter._packs
    assert packs.pack_set.numbers == [1] and len(packs.unsynced) == 1
    broker.checkpoint()
    assert packs.unsynced == [] and broker.splitter.image.packs == [1]


def test_numbers_are_never_given_twice() -> None:
    broker = Broker("shared")
    broker.put(1)
    broker.split()
    assert [broker.splitter.take_label().number for _ in range(2)] == [2, 3]


def test_a_pack_of_a_round_that_was_not_reported_goes() -> None:
    broker = Broker("shared")
    broker.put(1)
    broker.split()
    broker.checkpoint()
    broker.put(1)
    broker.splitter.split(0, broker.engine.splittable(0), 0)
    before = broker.read_disk.list("packs")
    broker.succeed()
    assert len(before) == 2 and broker.read_disk.list("packs") == before[:1]
