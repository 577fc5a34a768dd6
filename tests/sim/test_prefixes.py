"""Every prefix of a written journal recovers, to exactly the entries that lie wholly before the cut."""

from __future__ import annotations

from random import Random

from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import Entry, Keyed, StartMoved, journal_segment
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.testing.oracle import Fold, QueueModel
from cairnmq.testing.sim_checks import check_content, check_state
from cairnmq.testing.sim_disk import SimDisk

SPECS = [QueueSpec(number, "t", number, bytes(16), LogConfig()) for number in (1, 2)]


def open_engine(journal_disk: SimDisk, epoch: int) -> Engine:
    return Engine.open(
        journal_disk,
        SimDisk(Random(0)),
        SPECS,
        begin=lambda _: epoch,
        seed=5,
        config=EngineConfig(segment_bytes=300),
        now_ms=1000,
    )


def written_journal() -> SimDisk:
    disk = SimDisk(Random(0))
    engine = open_engine(disk, 1)
    path = engine.paths[0]
    for number in range(8):
        queue = engine.queues[1 + number % 2]
        records = [Record(offset=0, timestamp=number, key=None, value=b"%08d" % number)]
        batch = build_batch(records, producer_id=9, producer_epoch=0, base_sequence=number // 2)
        path.stage(queue, memoryview(bytearray(batch)), -1, 1000)
        if number == 4:
            path.stage_fact(queue, StartMoved(1), 1000)
        if number % 3 == 2:
            path.stage_fact(None, Keyed("offsets", b"g", b"%d" % number), 1000)
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
    return disk


def cut_at(files: dict[int, bytes], end: int) -> SimDisk:
    disk = SimDisk(Random(0))
    disk.make_dir("0")
    for base, data in files.items():
        if base < end:
            disk.create(journal_segment(0, base)).append([data[: end - base]])
    return disk


def test_every_prefix_recovers() -> None:
    whole = written_journal()
    reader = JournalReader(whole, 0)
    files = {base: reader.file(base).read(0, 1 << 20) for base in reader.bases}
    entries: list[Entry] = list(reader.entries(0, reader.end()))
    assert len(files) > 2 and entries[-1].end == reader.end()
    for end in range(reader.end() + 1):
        kept = [entry for entry in entries if entry.end <= end]
        engine = open_engine(cut_at(files, end), 2)
        assert engine.scans[0].end == (kept[-1].end if kept else 0), end
        fold = Fold()
        for entry in kept:
            fold.add(entry)
        assert engine.keyed == fold.keyed
        for queue in engine.queues.values():
            expected = fold.queues.get(queue.queue_id) or QueueModel()
            check_state(queue, expected)
            check_content(engine, queue, expected)
