"""A sync of the read disk that failed."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.errors import Fault
from cairnmq.storage.files.format import UNSYNCED
from cairnmq.storage.splitter.failed_syncs import FailedSync
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_after_a_failed_sync_nothing_is_checkpointed(broker: Broker) -> None:
    broker.put(1)
    broker.split()
    broker.read_disk.faults[broker.read_disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        broker.splitter.checkpoint(NOW)
    with pytest.raises(Fault, match="split again"):
        broker.splitter.checkpoint(NOW)
    broker.put(1)
    with pytest.raises(Fault, match="split again"):
        broker.splitter.split(0, broker.engine.splittable(0), NOW)
    # the next start makes all of it again, so that no page that was lost is believed
    broker.start(2)
    broker.split()
    broker.checkpoint()
    for seed in range(20):
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.crash(Random(seed))
        broker.start(3 + seed)
        assert broker.offsets(1) == [0, 1]


def test_a_note_on_the_disk_is_a_failed_sync_of_a_predecessor(broker: Broker) -> None:
    broker.read_disk.create(UNSYNCED).close()
    successor = broker.make_splitter()
    assert successor.failed_sync == FailedSync()
    assert str(FailedSync("EIO")) == f"{FailedSync()} (EIO)"
