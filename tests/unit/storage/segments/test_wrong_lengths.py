"""A batch that says it is larger than it is: what is read because of that is bounded, and so is what is lost."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.batches.batch_run import NotCached, Part, Wanted, walk
from cairnmq.storage.batches.batch_scan import NoBatch, scan_batches
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import BATCH, Entry, PackLabel
from cairnmq.storage.packs.pack import PackWriter
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.segments.index_rebuild import rebuild_indexes
from cairnmq.storage.segments.queue_reader import QueueReader
from cairnmq.storage.segments.segment import INDEX, LOG, segment_name
from unit.storage.counted_reads import CountedReads

DIRECTORY = "queues/t-0"
COUNT = 2000
VALUE_BYTES = 16_000
BAD = 500  # the batch whose length is wrong
END = 1 << 40
MAX_BYTES = 1 << 20
# What one lookup and one read may cost: parts of the index, headers, a read of `MAX_BYTES` and a look at a few batches.
READ_BYTES_MAX = 4 << 20


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[position + 8 : position + 12], "big") ^ (1 << bit)
    data[position + 8 : position + 12] = length.to_bytes(4, "big")
    path.write_bytes(data)


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    """One segment of 32 MB, offset N in batch N."""
    disk, random = RealDisk(tmp_path), Random(1)
    disk.make_dir(DIRECTORY)
    file = disk.create(segment_name(DIRECTORY, 0, LOG))
    value = random.randbytes(VALUE_BYTES)
    for number in range(COUNT):
        file.append([build_batch([Record(0, 1000 + number, None, value)], base_offset=number)])
    file.close()
    rebuild_indexes(disk, DIRECTORY, 0)
    return disk


def damaged(disk: RealDisk, bit: int) -> int:
    """Flips a bit of the length of batch `BAD`; returns its position."""
    path = Path(disk.root) / segment_name(DIRECTORY, 0, LOG)
    place = next(place for place in walk(disk.open(segment_name(DIRECTORY, 0, LOG)), 0) if place.base_offset == BAD)
    flip(path, place.position, bit)
    return place.position


def take(reader: QueueReader | PackSet, offset: int) -> Part:
    """As the event loop reads: never blocking, with the blocking parts done in between."""
    wanted = Wanted(offset, END if isinstance(reader, QueueReader) else COUNT, -1, MAX_BYTES)
    for _ in range(5):
        if isinstance(reader, QueueReader):
            found = reader.read(wanted, whole=True, cached=True)
        else:
            found = reader.read(7, wanted, whole=True, cached=True)
        if isinstance(found, Part):
            return found
        found.load()
    raise AssertionError("it waits for ever")


@pytest.mark.parametrize("bit", [15, 18, 20, 21, 22, 23, 24, 29, 30])
@pytest.mark.parametrize("indexed", [True, False], ids=["index", "no index"])
def test_a_wrong_length_in_a_segment(disk: RealDisk, bit: int, indexed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    position = damaged(disk, bit)
    if not indexed:
        disk.remove(segment_name(DIRECTORY, 0, INDEX))
    reads = CountedReads(monkeypatch)
    reader = QueueReader(disk, DIRECTORY)
    with pytest.raises(Damage, match=f"damaged at {position}: offset {BAD}"):
        take(reader, BAD)
    assert reads.largest <= 2 * MAX_BYTES, "more than that is never in memory at once"
    if indexed:
        assert reads.total <= READ_BYTES_MAX
        reads.forget()
        assert take(reader, BAD + 1).next_offset > BAD + 1, "the index leads around it"
        assert reads.total <= READ_BYTES_MAX
    reads.forget()
    with pytest.raises(Damage):
        take(reader, BAD)
    assert reads.largest <= 2 * MAX_BYTES and (not indexed or reads.total <= READ_BYTES_MAX)
    before = take(reader, BAD - 10)
    assert before.next_offset == BAD


def test_the_loop_does_not_read_what_is_known_to_be_damaged(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand readers ask again and again: the blocking look is on another thread, and small."""
    damaged(disk, 29)
    reader = QueueReader(disk, DIRECTORY)
    with pytest.raises(Damage):
        take(reader, BAD)
    reads = CountedReads(monkeypatch)
    look = reader.read(Wanted(BAD, END, -1, MAX_BYTES), whole=True, cached=True)
    assert isinstance(look, NotCached) and reads.total == 0


@pytest.mark.parametrize("bit", [17, 18, 22, 29])
def test_a_wrong_length_in_a_pack(tmp_path: Path, bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, value = RealDisk(tmp_path), Random(1).randbytes(VALUE_BYTES)
    batches = [build_batch([Record(0, 1000, None, value)], base_offset=number) for number in range(60)]
    writer = PackWriter(disk, PackLabel(1, 0))
    writer.add_batches(7, [Entry(0, 0, BATCH, 0, 7, 0, memoryview(b), n, n) for n, b in enumerate(batches)])
    writer.finish()
    pack_set = PackSet(disk, [1])
    extent = pack_set.packs[0].of_queue(7)[0]
    bad = extent.position + 5 * len(batches[0])
    flip(tmp_path / pack_set.packs[0].name, bad, bit)
    reads = CountedReads(monkeypatch)
    pack_set = PackSet(disk, [1])
    with pytest.raises(Damage, match=f"damaged at {bad}: offset"):
        take(pack_set, 5)
    assert reads.total <= READ_BYTES_MAX and reads.largest <= 2 * MAX_BYTES
    assert take(pack_set, 30).next_offset > 30


def test_a_batch_larger_than_any_read_is_served_whole(tmp_path: Path) -> None:
    """Its length is right, so it is believed after a look at all of it."""
    disk, random = RealDisk(tmp_path), Random(1)
    disk.make_dir(DIRECTORY)
    file = disk.create(segment_name(DIRECTORY, 0, LOG))
    sizes = [100, 9 << 20, 100]
    batches = [
        build_batch([Record(0, 1000, None, random.randbytes(size))], base_offset=n) for n, size in enumerate(sizes)
    ]
    file.append(batches)
    reader = QueueReader(disk, DIRECTORY)
    assert [bytes(take(reader, offset).data)[: len(batches[offset])] for offset in range(3)] == batches
    assert bytes(reader.read(Wanted(1, END, -1, MAX_BYTES), whole=True, cached=False).data) == batches[1]


def test_dump_and_verify_hold_no_more_than_a_part_of_what_a_length_claims(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = damaged(disk, 24)
    reads = CountedReads(monkeypatch)
    found = list(scan_batches(disk.open(segment_name(DIRECTORY, 0, LOG))))
    bad = [one for one in found if isinstance(one, NoBatch) or not one.crc_ok]
    assert bad[0].position == position
    assert reads.largest <= 4 << 20
