"""A stop in order is known to the next start, to no other one, and not when anything is missing."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.recovery.clean_stop import CLEAN_STOP, CleanStop, read_clean_stop, write_clean_stop
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.recovery.test_replay import SPECS, Broker


def opened(disks: tuple[SimDisk, SimDisk], epoch: int, last_epoch: int | None = None) -> Broker:
    broker = Broker.__new__(Broker)
    broker.journal_disk, broker.read_disk, broker.epoch = *disks, epoch
    broker.engine = Engine.open(
        *disks,
        SPECS,
        begin=lambda _: epoch,
        seed=5,
        config=EngineConfig(),
        now_ms=1000,
        last_epoch=epoch - 1 if last_epoch is None else last_epoch,
    )
    return broker


def split(broker: Broker) -> None:
    image = load_checkpoint(broker.read_disk)
    splitter = Splitter(
        broker.journal_disk, broker.read_disk, image, lambda ids: [s for s in SPECS if s.queue_id in ids], journals=[0]
    )
    while (done := splitter.split(0, broker.engine.splittable(0), 1000)) is not None:
        broker.engine.on_round(done)
    broker.engine.on_checkpoint(splitter.checkpoint(1000))
    splitter.close()


@pytest.fixture
def broker() -> Broker:
    broker = opened((SimDisk(Random(1)), SimDisk(Random(2))), 1)
    broker.put()
    split(broker)
    broker.engine.end()
    return broker


def crashed(broker: Broker) -> tuple[SimDisk, SimDisk]:
    return broker.journal_disk.crash(), broker.read_disk.crash()


def test_it_is_known_to_the_next_start(broker: Broker) -> None:
    assert read_clean_stop(broker.read_disk) == CleanStop(1, {0: broker.engine.paths[0].journal.end})
    assert opened(crashed(broker), 2).engine.was_clean, "also after a power loss"


def test_a_power_loss_after_the_next_start_is_no_clean_stop(broker: Broker) -> None:
    """The checkpoint of version 1 said still "clean" until the next one was published."""
    after = opened(crashed(broker), 2)
    after.put(sync=False)
    again = opened(crashed(after), 3)
    assert not again.engine.was_clean
    assert not opened(crashed(again), 4).engine.was_clean, "nor for any later start"


def test_it_is_gone_before_anything_is_appended(broker: Broker) -> None:
    disks = crashed(broker)
    appended: list[bool] = []

    def observe(disk: SimDisk) -> None:
        appended.append(disks[1].crash(Random(1)).exists(CLEAN_STOP))

    disks[0].observe = observe
    opened(disks, 2).put()
    assert appended and not any(appended)


def test_a_start_that_came_no_further_than_its_epoch(broker: Broker) -> None:
    """It may have done anything."""
    assert not opened(crashed(broker), 3, last_epoch=2).engine.was_clean


def test_a_journal_that_has_lost_its_end(broker: Broker) -> None:
    disks = crashed(broker)
    stop = read_clean_stop(disks[1])
    assert stop is not None
    write_clean_stop(disks[1], CleanStop(stop.epoch, {0: stop.ends[0] + 10}))
    assert not opened(disks, 2).engine.was_clean


def test_what_is_not_split_is_no_clean_stop() -> None:
    broker = opened((SimDisk(Random(1)), SimDisk(Random(2))), 1)
    broker.put()
    broker.engine.end()
    assert read_clean_stop(broker.read_disk) is None


def test_a_journal_that_stopped_is_no_clean_stop(broker: Broker) -> None:
    after = opened(crashed(broker), 2)
    after.engine.paths[0].stop("the disk is full")
    after.engine.end()
    assert read_clean_stop(after.read_disk) is None


def test_a_damaged_file_says_nothing(broker: Broker) -> None:
    for at in range(broker.read_disk.open(CLEAN_STOP).size()):
        disk = broker.read_disk.crash()
        disk.damage(CLEAN_STOP, at)
        assert read_clean_stop(disk) is None, at
