"""Queue logs: Kafka's files, written by the splitter, cut and claimed after a crash; and the broker's reader."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from cairnmq.codec.batch import HEADER_SIZE, set_offset_and_epoch
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.batch_run import NotCached, Part, Wanted, walk
from cairnmq.storage.files.damage import Place
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import BATCH, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Entry, numbered
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.queue_log import QueueLog, read_identity, retire_directory
from cairnmq.storage.segments.queue_reader import QueueReader
from cairnmq.storage.segments.segment import SegmentRun, offset_position, time_hint
from cairnmq.testing.sim_disk import SimDisk, SimFile

DIRECTORY = "queues/t-0"


def batch(base: int, count: int = 2, size: int = 50, timestamp: int = 1000) -> Entry:
    records = [Record(offset=0, timestamp=timestamp, key=None, value=b"v" * size) for _ in range(count)]
    data = bytearray(build_batch(records))
    set_offset_and_epoch(data, base, 1)
    return Entry(0, 0, BATCH, 1, 1, 0, memoryview(data), base, base + count - 1, 1, timestamp, count=count)


def spec(queue_id: int = 1, **config: int) -> QueueSpec:
    return QueueSpec(queue_id, "t", 0, bytes(16), LogConfig(**config))  # type: ignore[arg-type]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(5))


def opened(
    disk: SimDisk, offset: int = 0, checkpointed: tuple[int, int] = (0, 0), queue_id: int = 1, **config: int
) -> QueueLog:
    log = QueueLog(disk, spec(queue_id, **config))
    log.open_at(offset, checkpointed)
    return log


def filled(disk: SimDisk, count: int, **config: int) -> QueueLog:
    log = opened(disk, **config)
    log.append([batch(2 * n, timestamp=1000 + n) for n in range(count)])
    return log


def checkpoint(disk: SimDisk, log: QueueLog) -> None:
    files, names, directories = log.sync_parts()
    disk.sync_files([*files, *(disk.open(name, write=True) for name in names)], directories)
    log.synced()


def bases(disk: SimDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")]


# ------------------------------------------------------------------------------------------------------- writing


def test_batches_lie_one_behind_the_other(disk: SimDisk) -> None:
    filled(disk, 4)
    places = list(walk(disk.open(f"{DIRECTORY}/{0:020d}.log"), 0))
    assert [(place.base_offset, place.last_offset) for place in places] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_it_rolls_by_size(disk: SimDisk) -> None:
    size = len(batch(0).payload)
    filled(disk, 5, segment_bytes=2 * size)
    assert bases(disk) == [0, 4, 8]


def test_it_rolls_by_time(disk: SimDisk) -> None:
    log = opened(disk, segment_ms=100)
    log.append([batch(0, timestamp=1000), batch(2, timestamp=1100), batch(4, timestamp=1101), batch(6, timestamp=1102)])
    assert bases(disk) == [0, 4]


def test_indexes_point_at_batches(disk: SimDisk) -> None:
    log = filled(disk, 6, index_interval_bytes=1)
    log.flush_indexes()
    data = disk.open(f"{DIRECTORY}/{0:020d}.index").read(0, 1000)
    places = {place.position: place for place in walk(disk.open(f"{DIRECTORY}/{0:020d}.log"), 0)}
    entries = list(OFFSET_INDEX_ENTRY.iter_unpack(data))
    assert len(entries) == 5
    assert all(places[position].last_offset == relative for relative, position in entries)
    assert offset_position(disk, DIRECTORY, 0, 6) == entries[1][1]  # the last entry at or before offset 6
    times = list(TIME_INDEX_ENTRY.iter_unpack(disk.open(f"{DIRECTORY}/{0:020d}.timeindex").read(0, 1000)))
    assert times == [(1001 + n, 3 + 2 * n) for n in range(5)]
    assert time_hint(disk, DIRECTORY, 0, 1003) == (5, 1002, 1005)


def test_a_closed_segment_ends_its_time_index_with_the_largest(disk: SimDisk) -> None:
    filled(disk, 4, segment_bytes=2 * len(batch(0).payload))
    assert time_hint(disk, DIRECTORY, 0, 0)[2] == 1001


def test_the_largest_timestamp_is_found_again_when_a_crash_took_the_time_index(disk: SimDisk) -> None:
    """Of the two indexes a crash cuts each by itself."""
    log = opened(disk, index_interval_bytes=1)
    log.append([batch(2 * n, timestamp=time) for n, time in enumerate((2000, 1000, 1001, 1002))])
    log.flush_indexes()
    disk.open(f"{DIRECTORY}/{0:020d}.timeindex", write=True).truncate(0)
    size = log.size
    log = opened(disk, 8, segment_bytes=size)
    assert log.max_timestamp == 2000
    log.append([batch(8, timestamp=1003)])
    assert bases(disk) == [0, 8]
    assert time_hint(disk, DIRECTORY, 0, 0)[2] == 2000


@pytest.mark.parametrize("seed", range(10))
def test_a_time_entry_that_a_failed_sync_lost_is_made_again(seed: int) -> None:
    """It was written when the segment was closed, behind the checkpoint, about a batch below it."""
    disk, size = SimDisk(Random(seed)), len(batch(0).payload)
    log = filled(disk, 2, segment_bytes=2 * size)
    checkpoint(disk, log)
    log.append([batch(4, timestamp=1002)])
    files, names, _ = log.sync_parts()
    for file in [*(disk.open(name, write=True) for name in names), *files]:
        disk.faults[disk.operations + 1] = errno.EIO
        with pytest.raises(OSError):
            file.sync()
    disk.faults.clear()
    disk = disk.kill()
    log = opened(disk, 4, (0, 4), segment_bytes=2 * size)
    log.append([batch(4, timestamp=1002)])
    checkpoint(disk, log)
    crashed = disk.crash()
    assert time_hint(crashed, DIRECTORY, 0, 0)[2] == 1001
    index = crashed.open(f"{DIRECTORY}/{0:020d}.timeindex")
    assert index.read(0, 100) == TIME_INDEX_ENTRY.pack(1001, 3)


def test_deletion_keeps_the_segment_the_start_lies_in(disk: SimDisk) -> None:
    log = filled(disk, 6, segment_bytes=2 * len(batch(0).payload))
    assert log.remove_below(7) == [0]
    assert bases(disk) == [4, 8]
    assert log.remove_below(8) == [4]
    log.remove_last()
    assert bases(disk) == []
    log.append([batch(12)])
    assert bases(disk) == [12]


# ------------------------------------------------------------------------------------------------- after a crash


def test_what_lies_behind_the_offset_is_cut(disk: SimDisk) -> None:
    log = filled(disk, 6, segment_bytes=2 * len(batch(0).payload), index_interval_bytes=1)
    log.flush_indexes()
    again = opened(disk, 6, (0, 6), segment_bytes=2 * len(batch(0).payload), index_interval_bytes=1)
    assert bases(disk) == [0, 4]
    assert [place.base_offset for place in walk(disk.open(f"{DIRECTORY}/{4:020d}.log"), 0)] == [4]
    again.append([batch(6, timestamp=2000)])
    checkpoint(disk, again)
    assert [place.base_offset for place in walk(disk.open(f"{DIRECTORY}/{4:020d}.log"), 0)] == [4, 6]
    assert again.max_timestamp == 2000


def test_missing_records_are_damage(disk: SimDisk) -> None:
    """It costs those records only: what follows goes into a new segment."""
    filled(disk, 3)
    log = opened(disk, 8, (0, 8))
    size = disk.open(f"{DIRECTORY}/{0:020d}.log").size()
    assert log.damages == [Place(f"{DIRECTORY}/{0:020d}.log", size, "t-0", 6, 8)]
    log.append([batch(8)])
    assert bases(disk) == [0, 8] and disk.open(f"{DIRECTORY}/{0:020d}.log").size() == size
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    disk.remove(f"{DIRECTORY}/{8:020d}.log")
    log = opened(disk, 6, (0, 6))
    assert log.damages == [Place(DIRECTORY, -1, "t-0", 0, 6)]
    log.append([batch(6)])
    assert bases(disk) == [6]


def test_damage_in_the_batch_of_a_time_entry_does_not_keep_a_log_from_being_opened(disk: SimDisk) -> None:
    """Who could not open it could not mend it either. Many batches of one time follow the last entry of the index."""
    log = opened(disk, index_interval_bytes=1)
    log.append([batch(2 * n, timestamp=1000 + min(n, 5)) for n in range(12)])
    checkpoint(disk, log)
    name = f"{DIRECTORY}/{0:020d}.log"
    for place in list(walk(disk.open(name), 0)):
        for position in range(place.position, place.position + place.size, 3):
            disk.damage(name, position)
            again = opened(disk, 24, (0, 24), index_interval_bytes=1)
            again.close_file()
            disk.damage(name, position)
            checkpoint(disk, opened(disk, 24, (0, 24), index_interval_bytes=1))


def test_a_directory_of_another_queue_is_put_aside(disk: SimDisk) -> None:
    filled(disk, 3)
    opened(disk, queue_id=2)
    assert bases(disk) == []
    identity = read_identity(disk, DIRECTORY)
    assert identity is not None and identity.queue_id == 2
    assert disk.list("queues") == ["t-0"]


def test_a_checkpointed_queue_never_takes_another_directory(disk: SimDisk) -> None:
    filled(disk, 3)
    log = opened(disk, 6, (0, 6), queue_id=2)
    why = "its queue.json is that of queue 1 (t-0); it was moved to lost/0/queues/t-0"
    assert log.damages == [Place(DIRECTORY, -1, "t-0", 0, 6, why)] and bases(disk) == []
    assert numbered(disk.list("lost/0/queues/t-0"), ".log") == [0]
    log.append([batch(6)])
    assert bases(disk) == [6]


def test_a_torn_identity_before_the_first_checkpoint_is_no_damage(disk: SimDisk) -> None:
    filled(disk, 3)
    disk.open(f"{DIRECTORY}/queue.json", write=True).truncate(4)
    opened(disk)
    assert bases(disk) == []


def test_a_damaged_identity_of_a_checkpointed_queue_is_written_again(disk: SimDisk) -> None:
    filled(disk, 3)
    disk.open(f"{DIRECTORY}/queue.json", write=True).truncate(4)
    log = opened(disk, 6, (0, 6))
    assert log.damages == [Place(f"{DIRECTORY}/queue.json", 0, "t-0")] and bases(disk) == [0]
    identity = read_identity(disk, DIRECTORY)
    assert identity is not None and identity.queue_id == 1


def test_deleted_segments_that_came_back_are_removed(disk: SimDisk) -> None:
    """Everything was deleted and checkpointed so; then a crash lost some of the deletions."""
    filled(disk, 4, segment_bytes=2 * len(batch(0).payload))
    log = opened(disk, 20, (20, 20))
    assert bases(disk) == []
    log.append([batch(20)])
    assert bases(disk) == [20]


def test_a_checkpoint_syncs_what_a_dead_predecessor_wrote(disk: SimDisk) -> None:
    filled(disk, 6, segment_bytes=2 * len(batch(0).payload), index_interval_bytes=1)
    successor = opened(disk, 12, (0, 0), segment_bytes=2 * len(batch(0).payload), index_interval_bytes=1)
    checkpoint(disk, successor)
    for seed in range(20):
        crashed = disk.crash(Random(seed))
        opened(crashed, 12, (0, 12), segment_bytes=2 * len(batch(0).payload))
        assert bases(crashed) == [0, 4, 8]


def test_a_cut_is_synced_even_if_a_new_segment_follows_it(disk: SimDisk) -> None:
    size = len(batch(0).payload)
    log = filled(disk, 2)
    checkpoint(disk, log)
    log.append([batch(4)])
    opened(disk, 4, (0, 4), segment_bytes=size).append([batch(4)])  # cuts, rolls, and dies
    checkpoint(disk, opened(disk, 6, (0, 4)))
    for seed in range(30):
        assert disk.crash(Random(seed)).open(f"{DIRECTORY}/{0:020d}.log").size() == 2 * size


# ------------------------------------------------------------------------------------------------------- reading


def read(reader: QueueReader, offset: int, max_bytes: int, limit: int, *, whole: bool = True) -> tuple[list[int], int]:
    part = reader.read(Wanted(offset, limit, -1, max_bytes), whole=whole, cached=False)
    assert isinstance(part, Part)
    size = len(batch(0).payload)
    return [int.from_bytes(part.data[at : at + 8], "big") for at in range(0, len(part.data), size)], part.next_offset


def test_reading_by_offset(disk: SimDisk) -> None:
    size = len(batch(0).payload)
    log = filled(disk, 6, segment_bytes=4 * size, index_interval_bytes=1)
    log.flush_indexes()
    reader = QueueReader(disk, DIRECTORY)
    assert read(reader, 0, 10 * size, 12) == ([0, 2, 4, 6], 8)
    assert read(reader, 8, 10 * size, 12) == ([8, 10], 12)
    assert read(reader, 3, 2 * size, 12) == ([2, 4], 6)
    assert read(reader, 2, 10 * size, 6) == ([2, 4], 6)


def test_one_batch_at_least_if_asked_for(disk: SimDisk) -> None:
    filled(disk, 2)
    reader = QueueReader(disk, DIRECTORY)
    assert read(reader, 0, 1, 4) == ([0], 2)
    assert read(reader, 0, 1, 4, whole=False)[0] == []


def test_no_byte_is_read_only_to_be_cut_off(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read has seen of the batch behind it bounds the next one."""
    size = len(batch(0).payload)
    filled(disk, 7, segment_bytes=100 * size)
    reader = QueueReader(disk, DIRECTORY)
    assert read(reader, 0, size * 5 // 2, 14) == ([0, 2], 4)
    asked = []
    plain = SimFile.read

    def counted(self: SimFile, position: int, length: int) -> bytes:
        asked.append(length)
        return plain(self, position, length)

    monkeypatch.setattr(SimFile, "read", counted)
    assert read(reader, 4, size - 1, 14, whole=False)[0] == [] and asked == [], "it is known not to fit"
    assert read(reader, 4, size * 5 // 2, 14) == ([4, 6], 8)
    assert read(reader, 8, size * 5 // 2, 14) == ([8, 10], 12)
    assert asked == 2 * [2 * size + HEADER_SIZE]


def test_what_is_said_of_the_next_batch_is_only_a_hint(disk: SimDisk) -> None:
    size = len(batch(0).payload)
    filled(disk, 6)
    for hint in (1, 61, size - 1, size + 1, 3 * size, 10 * size, 1 << 31):
        reader = QueueReader(disk, DIRECTORY)
        assert read(reader, 0, size, 12) == ([0], 2)
        reader._places[2] = (0, size, hint, 0)
        assert read(reader, 2, 2 * size, 12) in (([2], 4), ([2, 4], 6))


def test_garbage_behind_the_limit_is_never_read(disk: SimDisk) -> None:
    """After a power loss the file may hold anything behind the checkpoint, until the splitter has cut it."""
    filled(disk, 2)
    file = disk.open(f"{DIRECTORY}/{0:020d}.log", write=True)
    garbage = bytearray(batch(4).payload)
    garbage[0:8] = bytes(8)  # a torn page: the offset reads as zero, which is below any limit
    file.append([garbage])
    assert read(QueueReader(disk, DIRECTORY), 0, 1 << 20, 4) == ([0, 2], 4)


def test_a_reader_survives_retention(disk: SimDisk) -> None:
    size = len(batch(0).payload)
    log = filled(disk, 4, segment_bytes=2 * size)
    reader = QueueReader(disk, DIRECTORY)
    assert read(reader, 0, 2 * size, 8) == ([0, 2], 4)
    reader._files.clear()
    log.remove_below(4)
    assert read(reader, 4, 2 * size, 8) == ([4, 6], 8)
    log.remove_last()
    log.append([batch(8)])
    reader._files.clear()
    assert read(reader, 8, 2 * size, 10) == ([8], 10)


def test_a_cold_read_gives_the_way_to_warm_it(disk: SimDisk) -> None:
    filled(disk, 2)
    reader = QueueReader(disk, DIRECTORY)
    warm = reader.read(Wanted(2, 4, -1, 1000), whole=True, cached=True)
    assert isinstance(warm, NotCached)
    warm.load()
    assert isinstance(reader.read(Wanted(2, 4, -1, 1000), whole=True, cached=True), Part)


def test_the_beginning_of_a_segment_needs_no_index(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its file must be opened once, where that may wait for the disk."""
    size = len(batch(0).payload)
    filled(disk, 4, segment_bytes=2 * size)
    reader = QueueReader(disk, DIRECTORY)
    monkeypatch.setattr(SegmentRun, "find", None)
    for offset in (0, 4):
        look = reader.read(Wanted(offset, 8, -1, size), whole=True, cached=True)
        assert isinstance(look, NotCached)
        look.load()
        for _ in range(2):
            part = reader.read(Wanted(offset, 8, -1, size), whole=True, cached=True)
            assert isinstance(part, Part) and part.next_offset == offset + 2


def test_nothing_of_a_first_read_blocks_the_loop(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch(0).payload)
    filled(disk, 4, segment_bytes=2 * size)
    reader = QueueReader(disk, DIRECTORY)
    with monkeypatch.context() as blocked:
        blocked.setattr(SimDisk, "list", None)
        blocked.setattr(SimDisk, "open", None)
        look = reader.read(Wanted(2, 8, -1, size), whole=True, cached=True)
        assert isinstance(look, NotCached) and isinstance(reader.aborted(0, 2, 8, cached=True), NotCached)
    look.load()
    with monkeypatch.context() as blocked:
        blocked.setattr(SimDisk, "list", None)
        blocked.setattr(SimDisk, "open", None)
        part = reader.read(Wanted(2, 8, -1, size), whole=True, cached=True)
        assert isinstance(part, Part) and part.next_offset == 4
        reader.saw_segment(4)
        assert isinstance(reader.read(Wanted(2, 8, -1, size), whole=True, cached=True), Part), "it is known already"
        reader.saw_segment(8)
        assert isinstance(reader.read(Wanted(4, 8, -1, size), whole=True, cached=True), NotCached)


@pytest.mark.parametrize("indexed", [True, False])
def test_lookups_by_time(disk: SimDisk, indexed: bool) -> None:
    size = len(batch(0).payload)
    log = opened(disk, segment_bytes=3 * size, index_interval_bytes=1)
    log.append([batch(2 * n, timestamp=time) for n, time in enumerate((100, 300, 200, 400, 350))])
    log.flush_indexes()
    if not indexed:
        for name in disk.list(DIRECTORY):
            if "index" in name:
                disk.remove(f"{DIRECTORY}/{name}")
    reader = QueueReader(disk, DIRECTORY)
    for timestamp, base in ((0, 0), (100, 0), (101, 2), (300, 2), (301, 6), (400, 6)):
        place = reader.find_time(timestamp, 10)
        assert place is not None and place.base_offset == base, timestamp
    assert reader.find_time(401, 10) is None
    newest = reader.newest(0, 10)
    assert newest is not None and newest.time == 400


def test_a_lost_offset_is_named(disk: SimDisk) -> None:
    filled(disk, 2)
    with pytest.raises(Corrupt, match="offset 9"):
        QueueReader(disk, DIRECTORY).read(Wanted(9, 20, -1, 100), whole=True, cached=False)


def test_a_directory_with_the_longest_name_can_be_retired(tmp_path: Path) -> None:
    """Found by fuzzing: the mark of a deleted queue made the name of a long topic too long, and the splitter died."""
    disk = RealDisk(str(tmp_path))
    directory = f"queues/{'a' * 249}-12345"
    disk.make_dir(directory)
    retired = retire_directory(disk, directory, 987654321)
    assert disk.list("queues") == [retired.removeprefix("queues/")]
    assert retired.endswith(".987654321-deleted") and retired.startswith("queues/aaa")
