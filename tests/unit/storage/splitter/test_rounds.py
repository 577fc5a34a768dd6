"""Rounds: what is split, and what a failed write left."""

from __future__ import annotations

import errno
from typing import cast

import pytest

from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches
from cairnmq.errors import Corrupt
from cairnmq.storage.files.disk import File
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.live.reads import Batches
from cairnmq.types import Buffer
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_round_moves_records_from_the_tail_to_the_log(broker: Broker) -> None:
    broker.put(1, 2, 1, 3, 1)
    assert broker.engine.queues[1].tail is not None
    broker.split()
    assert [broker.engine.queues[n].split_end for n in (1, 2, 3)] == [3, 1, 1]
    assert broker.engine.queues[1].tail is None
    assert broker.offsets(1) == [0, 1, 2]
    assert broker.engine.split[0] == broker.engine.paths[0].journal.end
    assert broker.engine.paths[0].unsplit_entries == 0


def test_nothing_to_do(broker: Broker) -> None:
    assert broker.splitter.split(0, 0, NOW) is None


def test_only_whole_entries_below_the_limit_are_split(broker: Broker) -> None:
    broker.put(1, 1)
    done = broker.splitter.split(0, broker.engine.splittable(0) - 1, NOW)
    assert done is not None and done.batches == 1 and done.queues[0].end == 1


def test_unreadable_journal_bytes_are_damage(broker: Broker) -> None:
    broker.put(1)
    broker.journal_disk.damage("0/00000000000000000000.jnl", 60)
    with pytest.raises(Corrupt, match="do not read back"):
        broker.splitter.split(0, broker.engine.splittable(0), NOW)
        broker.splitter.split(0, broker.engine.splittable(0), NOW)


class HalfWritten:
    """A file that fails after two whole entries, and then cannot be cut."""

    def __init__(self, file: File) -> None:
        self.file = file

    def append(self, buffers: list[Buffer]) -> int:
        self.file.append(buffers[:4])
        raise OSError(errno.EIO, "no")

    def truncate(self, size: int) -> None:
        raise OSError(errno.EIO, "no")


def stage(broker: Broker, *values: bytes) -> None:
    for value in values:
        batch = build_batch([Record(offset=0, timestamp=NOW, key=None, value=value)])
        broker.engine.paths[0].stage(broker.engine.queues[1], memoryview(bytearray(batch)), -1, NOW)


def values(broker: Broker) -> list[bytes | None]:
    queue = broker.engine.queues[1]
    fetched = broker.engine.reads.read(queue, queue.log_start, 10_000, whole=True, cached=False)
    assert isinstance(fetched, Batches)
    return [record.value for data in fetched.buffers for batch in iter_batches(data) for record in decode_batch(batch)]


def test_what_a_failed_write_left_behind_is_not_split(broker: Broker) -> None:
    path = broker.engine.paths[0]
    journal = path.journal
    stage(broker, b"first")
    broker.flush()
    broker.split()
    stage(broker, b"refused", b"refused too")
    write, last = path.take(), journal.segments[-1]
    assert write is not None
    file, last.file = last.file, cast(File, HalfWritten(last.file))
    with pytest.raises(OSError):
        path.write(write)
    path.failed(write, "no")
    last.file = file
    assert file.size() > last.size, "whole entries that were refused"
    stage(broker, b"acknowledged")
    broker.flush()
    broker.split()
    assert values(broker) == [b"first", b"acknowledged"]
    broker.checkpoint()
    broker.start(2)
    assert broker.engine.scans[0].damage is None and values(broker) == [b"first", b"acknowledged"]


def test_a_segment_that_came_to_nothing_does_not_stand_in_for_the_one_that_took_its_name(broker: Broker) -> None:
    stage(broker, b"first")
    broker.flush()
    name = journal_segment(0, broker.engine.paths[0].journal.end)
    broker.journal_disk.create(name).append([b"half a head"])
    broker.split()  # while that write is failing
    broker.journal_disk.remove(name)
    broker.engine.paths[0].journal.begin_segment()
    stage(broker, b"second")
    broker.flush()
    broker.split()
    assert values(broker) == [b"first", b"second"]
