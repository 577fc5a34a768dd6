"""The splitter process when the read disk refuses: tries again after a failed write, refuses after a failed sync."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from cairnmq.broker.clocks import ExpiryClock
from cairnmq.broker.storage_loop import splitter_process
from cairnmq.broker.storage_loop.broker_link import BrokerLink, polled
from cairnmq.broker.storage_loop.splitter_messages import (
    Advance,
    Begin,
    Begun,
    Checkpointed,
    Damaged,
    Drop,
    Expiration,
    Finish,
    Finished,
    Host,
    Inbox,
    Ping,
    Pong,
    Proposals,
    Repaired,
    Report,
    Seen,
    Split,
    SyncFailed,
    Trouble,
    framed,
    pair,
)
from cairnmq.broker.storage_loop.splitter_messages import reports as decoded
from cairnmq.broker.storage_loop.splitter_process import SplitterProcess, this_machine
from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import Resume
from cairnmq.storage.compaction.sieve import Sieve
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files import disk as disk_module
from cairnmq.storage.files.disk import File, RealDisk, RealFile
from cairnmq.storage.files.format import IDENTITY_FILE, PACKS, QUEUES, UNSYNCED, QueueIdentity
from cairnmq.storage.maintenance import maintenance
from cairnmq.storage.maintenance.pack_merge import FANOUT
from cairnmq.storage.queue.spec import QueueSpec

NOW = 1_000_000
SPEC = QueueSpec(1, "t", 0, bytes(16), LogConfig(model="dedicated"))
AGING = QueueSpec(2, "u", 0, bytes(16), LogConfig(model="dedicated", segment_bytes=200, retention_ms=1))
PACKED = QueueSpec(1, "t", 0, bytes(16), LogConfig(model="shared"))


class RefusingDisk(RealDisk):
    """A disk whose many-file sync fails for as long as `refuses` says."""

    refuses = False

    def sync_files(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        if RefusingDisk.refuses:
            raise OSError(errno.EIO, "no")
        super().sync_files(files, directories)


class Desk:
    """A data directory with a journal to split, and the process's loop without the process."""

    def __init__(self, tmp_path: Path, more: Sequence[QueueSpec] = ()) -> None:
        self.known = [SPEC, AGING, *more]
        self.journal_dir, self.data_dir = str(tmp_path / "journal"), str(tmp_path)
        self.epoch = 0
        self.open_broker()
        self.link, theirs = pair()
        self.inbox = Inbox()
        self.process = SplitterProcess(
            BrokerLink(theirs, polled(theirs)), structs.replace(this_machine(), disk=RefusingDisk)
        )
        self.specs = [SPEC, *more]
        self.process.broker.resolve = lambda queue_ids: self.specs  # type: ignore[method-assign]
        self.process.begin = Begin(self.journal_dir, self.data_dir, None, [0], {0: 0}, 60_000, 60_000, False, None)
        self.process.splitter = self.process.open_splitter(None)

    def open_broker(self) -> None:
        self.epoch += 1
        self.engine = Engine.open(
            RealDisk(self.journal_dir),
            RealDisk(self.data_dir),
            self.known,
            begin=lambda _: self.epoch,
            seed=5,
            config=EngineConfig(),
            now_ms=NOW,
        )

    def put(self, *queue_ids: int) -> None:
        """A record for each of these queues, or for the first."""
        path = self.engine.paths[0]
        for queue_id in queue_ids or (1,):
            data = build_batch([Record(offset=0, timestamp=NOW, key=None, value=b"value")])
            path.stage(self.engine.queues[queue_id], memoryview(bytearray(data)), -1, NOW)
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        path.synced_to(path.sync())

    def date(self, now_ms: int) -> None:
        """Its wall clock stands there."""
        self.process.machine = structs.replace(self.process.machine, wall_ms=lambda: now_ms)

    def finish(self) -> list[Report]:
        self.process.obey(Finish({0: self.engine.splittable(0)}))
        while self.process.work() is not None:
            pass
        return self.reports()

    def reports(self) -> list[Report]:
        self.link.setblocking(False)
        try:
            return list(decoded(self.inbox.feed(self.link.recv(1 << 20))))
        except BlockingIOError:
            return []


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(RefusingDisk, "refuses", False)
    return Desk(tmp_path)


def test_memory_is_given_back_after_the_start_and_when_it_was_calm_for_a_while(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(splitter_process, "trim_heap", lambda: trims.append(1))
    now = time.perf_counter()
    desk.process.step(now)
    desk.process.step(now + 60)
    assert len(trims) == 1
    desk.put()
    desk.process.limits[0] = desk.engine.splittable(0)
    desk.process.round()
    while desk.process.step(now := time.perf_counter()) == 0.0:
        pass
    assert len(trims) == 1, "between one round and the next"
    desk.process.step(now + splitter_process.REST_SECONDS + 1)
    assert len(trims) == 2


def test_a_paused_splitter_rests_when_retention_is_due(desk: Desk) -> None:
    """It used a whole CPU until splitting went on."""
    process, now = desk.process, time.perf_counter()
    process.paused, process.next_retention = True, now - 1
    assert max(process.step(now) or 0.0 for _ in range(5)) > 1.0


def test_silent_producers_are_forgotten_after_the_time_that_was_told_last(desk: Desk) -> None:
    desk.process.obey(Expiration(5000))
    assert desk.process.splitter.producer_expiration_ms == 5000
    assert desk.process.open_splitter(None).producer_expiration_ms == 5000, "also by one that begins again"


def test_a_clock_that_steps_forward_forgets_no_producers(desk: Desk) -> None:
    desk.date(NOW)
    desk.process.expiry_clock = ExpiryClock(lambda: desk.process.machine.wall_ms(), lambda: NOW, lambda: 86_400_000)
    data = build_batch(
        [Record(offset=0, timestamp=NOW, key=None, value=b"value")], producer_id=8, producer_epoch=0, base_sequence=0
    )
    desk.engine.paths[0].stage(desk.engine.queues[1], memoryview(bytearray(data)), -1, NOW)
    desk.put()
    desk.process.limits[0] = desk.engine.splittable(0)
    desk.process.round()
    desk.date(NOW + 30 * 86_400_000)
    desk.process.checkpoint()
    assert [row.producer_id for row in load_checkpoint(RealDisk(desk.data_dir)).queues[1].producers] == [8]


def test_a_new_journal_is_known_to_splitters_that_begin_again(desk: Desk) -> None:
    desk.put()
    desk.process.obey(Host(7))
    desk.process.obey(Advance({0: desk.engine.splittable(0), 7: 0}))
    assert desk.process.backlog() > 0 and desk.process.splitter.positions[7] == 0
    assert desk.process.open_splitter(None).positions[7] == 0
    assert [type(report) for report in desk.finish()] == [Split, Checkpointed, Finished]
    assert load_checkpoint(RealDisk(desk.data_dir)).marks[7].split == 0


def test_finish_splits_and_checkpoints(desk: Desk) -> None:
    desk.put()
    assert [type(report) for report in desk.finish()] == [Split, Checkpointed, Finished]


def test_after_a_failed_sync_it_and_its_successors_refuse_until_the_broker_is_back_at_the_checkpoint(
    desk: Desk,
) -> None:
    desk.put()
    RefusingDisk.refuses = True
    first = desk.finish()
    assert [type(report) for report in first] == [Split, SyncFailed]
    assert isinstance(first[0], Split) and isinstance(first[1], SyncFailed) and "split again" in first[1].reason
    desk.engine.on_round(first[0].round)
    RefusingDisk.refuses = False  # the disk says that all is well, and may not be believed
    desk.put()
    assert [type(report) for report in desk.finish()] == [SyncFailed]
    desk.process.splitter = desk.process.open_splitter(Resume({0: 0}))
    assert [type(report) for report in desk.finish()] == [Begun, SyncFailed]
    assert load_checkpoint(RealDisk(desk.data_dir)).marks == {}
    stored = desk.engine.scan_split(is_suspect=True)
    assert stored is not None
    desk.engine.unsplit(stored)
    assert desk.engine.queues[1].split_end == 0 and len(desk.engine.queues[1].tail or ()) == 2
    RealDisk(desk.data_dir).remove(UNSYNCED)
    desk.process.splitter = desk.process.open_splitter(None)
    desk.process.trouble = None
    assert [type(report) for report in desk.finish()] == [Split, Checkpointed, Finished]
    assert load_checkpoint(RealDisk(desk.data_dir)).queues[1].end == 2


def test_a_disk_that_fails_at_its_start_is_a_line_in_the_log(desk: Desk) -> None:
    """Found by chaos: it was a traceback. A successor starts anyway."""

    def fail(root: str) -> RealDisk:
        raise OSError(errno.EIO, "no")

    desk.process.machine = structs.replace(desk.process.machine, disk=fail)
    desk.process.broker.waiting.append(desk.process.begin)
    with pytest.raises(SystemExit, match="splitter cannot start: the disk failed"):
        desk.process.run()


@contextmanager
def limited_files(soft: int) -> Iterator[None]:
    old, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (old, hard))


def test_more_queues_with_segments_than_files_that_may_be_open(tmp_path: Path) -> None:
    """Rounds, checkpoints, looks and successors failed, again and again, until all producers waited."""
    # In a process of its own: nobody knows how many files the tests before have left open in this one.
    child = multiprocessing.get_context("spawn").Process(target=split_more_queues_than_files, args=(tmp_path,))
    child.start()
    child.join(120)
    assert child.exitcode == 0


def split_more_queues_than_files(data_dir: Path) -> None:
    specs = [structs.replace(SPEC, queue_id=number, partition=number) for number in range(3, 303)]
    with limited_files(300):
        desk = Desk(data_dir, specs)
        for end in (1, 2):
            desk.put(*range(3, 303))
            desk.process.limits = {0: desk.engine.splittable(0)}
            desk.process.round()
            if end == 1:
                desk.process.splitter.close()
                desk.process.splitter = desk.process.open_splitter(desk.process.splitter.resume())
            desk.process.maintenance.look(NOW)
            desk.process.checkpoint()
            desk.process.maintenance.look(NOW)
            assert [row.end for row in load_checkpoint(RealDisk(desk.data_dir)).queues.values()] == [end] * 300
        desk.process.splitter.close()


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A checkpoint takes parts: queues 9 to 12, whose files are open, are in the first."""
    monkeypatch.setattr(splitter_process, "_open_files_max", lambda: 8)
    desk = Desk(tmp_path, [structs.replace(SPEC, queue_id=number, partition=number) for number in range(3, 13)])
    desk.put(*range(3, 13))
    return desk


@pytest.mark.parametrize("failing", [None, 5, 8])
def test_a_sync_that_fails_in_a_later_part_is_noticed(
    crowded: Desk, monkeypatch: pytest.MonkeyPatch, failing: int | None
) -> None:
    """A failure that syncfs told with the first part it does not tell again."""
    flushed: list[int] = []

    def fail_once(fd: int) -> None:
        flushed.append(fd)
        if len(flushed) == 1:
            raise OSError(errno.EIO, "no")

    def sync(file: RealFile) -> None:
        if file.name.startswith(f"{QUEUES}/t-{failing}/"):
            raise OSError(errno.EIO, "no")

    monkeypatch.setattr(disk_module, "SYNCFS_ABOVE", 0)
    monkeypatch.setattr(disk_module, "_syncfs", fail_once)
    monkeypatch.setattr(RealFile, "sync", sync)
    read_disk = crowded.process.splitter.read_disk
    assert isinstance(read_disk, RealDisk)
    read_disk._has_syncfs = True
    reports = crowded.finish()
    assert flushed
    assert any(isinstance(report, SyncFailed) for report in reports) == (failing is not None)
    assert (load_checkpoint(RealDisk(crowded.data_dir)).queues == {}) == (failing is not None)


def test_directories_are_synced_with_the_last_part(crowded: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Sequence[str]] = []

    def sync_files(disk: RealDisk, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        calls.append(directories)

    monkeypatch.setattr(RealDisk, "sync_files", sync_files)
    crowded.finish()
    assert len(calls) > 1 and not any(calls[:-1])
    assert set(calls[-1]) == {"", QUEUES, *(f"{QUEUES}/t-{number}" for number in range(3, 13))}


def test_logs_in_use_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening each of them for each round would cost more than the data."""
    opened: list[str] = []
    real = RealDisk.open

    def open_noting(disk: RealDisk, name: str, *, write: bool = False) -> RealFile:
        opened.append(name)
        return real(disk, name, write=write)

    desk = Desk(tmp_path, [structs.replace(SPEC, queue_id=number, partition=number) for number in range(3, 103)])
    for _ in range(2):
        opened.clear()
        desk.put(*range(3, 103))
        desk.process.limits = {0: desk.engine.splittable(0)}
        monkeypatch.setattr(RealDisk, "open", open_noting)
        desk.process.round()
        monkeypatch.setattr(RealDisk, "open", real)
    assert not [name for name in opened if name.startswith(QUEUES)]


def unreadable(monkeypatch: pytest.MonkeyPatch, suffix: str, below: int = 1 << 62) -> None:
    """From now on the device gives nothing of such files back, or nothing that lies below a position."""
    read = RealFile._read

    def fail(file: RealFile, position: int, size: int) -> bytes:
        if file.name.endswith(suffix) and position < below:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, position, size)

    monkeypatch.setattr(RealFile, "_read", fail)


@pytest.mark.parametrize("what", ["log", "index", "timeindex"])
def test_retention_of_others_goes_on_where_a_closed_segment_cannot_be_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    desk.specs = [structs.replace(SPEC, config=AGING.config), AGING]
    for _ in range(8):
        desk.put(SPEC.queue_id, AGING.queue_id)
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    desk.process.checkpoint()
    desk.process.splitter.close()
    desk.process.splitter = desk.process.open_splitter(None)
    unreadable(monkeypatch, f"t-0/{0:020}.{what}")
    desk.reports()
    desk.process.next_retention = 0.0
    desk.process.maybe_propose(time.perf_counter())
    [proposals] = [report for report in desk.reports() if isinstance(report, Proposals)]
    assert AGING.queue_id in [start.queue_id for start in proposals.starts]
    found = [place.file for _, place in desk.process.splitter.damages]
    assert found == ([f"queues/t-0/{0:020}.log"] if what == "log" else [])


@pytest.mark.parametrize("what", ["log", "index", "timeindex", "txnindex"])
def test_splitting_goes_on_where_a_segment_cannot_be_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    desk.specs = [SPEC, AGING]
    desk.put(SPEC.queue_id, AGING.queue_id)
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    desk.process.checkpoint()
    desk.process.splitter.close()
    Path(desk.data_dir, f"queues/t-0/{0:020}.{what}").touch()
    desk.process.splitter = desk.process.open_splitter(None)
    desk.reports()
    unreadable(monkeypatch, f"t-0/{0:020}.{what}")
    desk.put(SPEC.queue_id, AGING.queue_id)
    assert [type(report) for report in desk.finish()] == [Split, Checkpointed, Finished]
    rows = load_checkpoint(RealDisk(desk.data_dir)).queues
    assert [rows[number].end for number in (SPEC.queue_id, AGING.queue_id)] == [2, 2]


@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("resumed", [True, False])
def test_splitting_goes_on_where_a_queue_does_not_say_whose_it_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, checkpointed: bool, resumed: bool
) -> None:
    """The checkpoint or the predecessor knows it; what was split counts, and the file is written again."""
    process, written = desk.process, Path(desk.data_dir, f"queues/t-0/{0:020}.log")
    desk.specs = [SPEC, AGING]
    desk.put(SPEC.queue_id, AGING.queue_id)
    process.limits = {0: desk.engine.splittable(0)}
    process.round()
    if checkpointed:
        process.checkpoint()
    first = written.read_bytes()
    process.splitter.close()
    identity = Path(desk.data_dir, "queues/t-0/queue.json")
    old = Path(desk.data_dir, "old")
    old.hardlink_to(identity)  # so that no other file gets its inode
    with monkeypatch.context() as patch:
        unreadable(patch, "t-0/queue.json")
        process.splitter = process.open_splitter(process.splitter.resume() if resumed else None)
        desk.put(SPEC.queue_id, AGING.queue_id)
        assert Trouble not in [type(report) for report in desk.finish()]
    rows = load_checkpoint(RealDisk(desk.data_dir)).queues
    assert [rows[number].end for number in (SPEC.queue_id, AGING.queue_id)] == [2, 2]
    assert written.read_bytes()[: len(first)] == first and len(written.read_bytes()) == 2 * len(first)
    assert not identity.samefile(old)


def test_a_topic_that_cannot_be_read_is_deleted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put()
    desk.finish()
    unreadable(monkeypatch, "t-0/queue.json")
    desk.process.obey(Drop([(SPEC.queue_id, SPEC.directory)]))
    desk.process.checkpoint()
    assert SPEC.queue_id not in load_checkpoint(RealDisk(desk.data_dir)).queues


def test_what_is_proven_of_old_segments_is_acted_on_soon(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the look itself, which holds up splitting, and not only in the next one, minutes later."""
    desk.specs = [AGING]
    for _ in range(8):
        desk.put(AGING.queue_id)
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    desk.process.checkpoint()
    monkeypatch.setattr(maintenance, "LOOK_BYTES", 0)
    desk.date(NOW + 1000)
    sent: list[Report] = []
    monkeypatch.setattr(desk.process.broker, "send", sent.append)
    started = desk.process.next_retention = time.perf_counter()
    while desk.process.next_retention < started + 30 and time.perf_counter() < started + 20:
        desk.process.step(time.perf_counter())
    assert desk.process.next_retention > started + 30, "then it is calm again"
    starts = [start for report in sent if isinstance(report, Proposals) for start in report.starts]
    assert starts and {start.queue_id for start in starts} == {AGING.queue_id}


def test_a_look_writes_again_what_says_whose_a_queue_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its log is open: without it, retention passes the queue by."""
    desk.specs = [AGING]
    for _ in range(8):
        desk.put(AGING.queue_id)
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    desk.process.checkpoint()
    with monkeypatch.context() as patch:
        unreadable(patch, "u-0/queue.json")
        desk.process.maintenance.look(NOW)
    assert [place.file for _, place in desk.process.splitter.damages] == ["queues/u-0/queue.json"]
    assert [start.queue_id for start in desk.process.maintenance.look(NOW + 1000)] == [AGING.queue_id]


def test_a_segment_that_cannot_be_read_is_made_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are still in the journal."""
    desk.put()
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    name = f"t-0/{0:020}.log"
    with monkeypatch.context() as patch:
        unreadable(patch, name)
        desk.process.to_repair.append((SPEC.queue_id, f"queues/{name}"))
        before = Path(desk.data_dir, "queues", name)
        inode, data = before.stat().st_ino, before.read_bytes()
        desk.process.repair()
    assert before.stat().st_ino != inode and before.read_bytes() == data


def test_damage_found_by_a_repair_is_reported_before_it(desk: Desk) -> None:
    """The other way round it stayed in the list of damages, although everything could be read again."""
    desk.put()
    desk.process.limits = {0: desk.engine.splittable(0)}
    desk.process.round()
    desk.process.checkpoint()
    stranger = QueueIdentity(77, "other", 0, bytes(16).hex())
    Path(desk.data_dir, SPEC.directory, IDENTITY_FILE).write_bytes(stranger.sealed())
    desk.process.to_repair.append((SPEC.queue_id, SPEC.directory))
    desk.reports()
    desk.process.repair()
    desk.process.repair()
    seen = [report for report in desk.reports() if isinstance(report, Damaged | Repaired)]
    assert [type(report) for report in seen] == [Damaged, Repaired], seen


@pytest.mark.parametrize("what", ["extents", "all"])
def test_a_pack_that_cannot_be_read_is_made_again(desk: Desk, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    process, desk.specs = desk.process, [PACKED]
    desk.put()
    process.limits = {0: desk.engine.splittable(0)}
    process.round()
    process.checkpoint()
    [pack] = process.splitter.pack_set.packs
    [extent] = pack
    data = pack.data(extent)
    unreadable(monkeypatch, pack.name, pack.table if what == "extents" else 1 << 62)
    process.to_repair.append((PACKED.queue_id, pack.name))
    process.repair()
    [made] = process.splitter.pack_set.packs
    assert made.number != pack.number and made.data(next(iter(made))) == data
    assert load_checkpoint(RealDisk(desk.data_dir)).packs == [made.number]


@pytest.mark.parametrize("looked", [True, False])
def test_a_segment_that_cannot_be_read_ends_the_pass_over_its_queue_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """`looked`: it cannot be read only when the pass has begun."""
    process, maintenance = desk.process, desk.process.maintenance
    compacted = LogConfig(model="dedicated", segment_bytes=200, compact=True, dirty_ratio_min=0.0, retention_ms=-1)
    desk.specs = [structs.replace(SPEC, config=compacted)]
    for _ in range(8):
        desk.put(SPEC.queue_id)
    process.limits = {0: desk.engine.splittable(0)}
    process.round()
    process.checkpoint()
    if looked:
        maintenance.look(NOW)
        process.splitter.written.clear()
    unreadable(monkeypatch, f"t-0/{0:020}.log")
    process.work()
    assert not process.must_reopen and maintenance.compactor.tally.passes == 0
    assert [place.file for _, place in process.splitter.damages] == [f"queues/t-0/{0:020}.log"]


def test_its_socket_may_have_any_number() -> None:
    """It keeps the number that it had in the broker, which may have thousands of files open."""
    ours, theirs = pair()
    with ours, theirs, limited_files(2048):
        with socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 1024)) as far:
            process = SplitterProcess(BrokerLink(far, polled(far)), this_machine())
            process.broker.receive(0.0)
            assert not process.broker.waiting
            ours.sendall(framed(Seen(7)))
            process.broker.receive(10.0)
            assert process.broker.waiting.pop() == Seen(7)


def test_a_failed_round_is_tried_again(desk: Desk) -> None:
    desk.put()
    (Path(desk.data_dir) / "queues").write_text("in the way")
    assert [type(report) for report in desk.finish()] == [Trouble]
    (Path(desk.data_dir) / "queues").unlink()
    after = desk.finish()
    assert [type(report) for report in after] == [Begun, Split, Trouble, Checkpointed, Finished]
    assert isinstance(after[2], Trouble) and after[2].reason is None, "the trouble is over"


def test_checkpoints_are_counted_on_after_a_failure(desk: Desk) -> None:
    """Else what the broker says of one before it would be taken for one that it does not know yet."""
    process = desk.process
    for _ in range(3):
        process.checkpoint()
    desk.put()
    (Path(desk.data_dir) / "queues").write_text("in the way")
    assert Trouble in [type(report) for report in desk.finish()]
    (Path(desk.data_dir) / "queues").unlink()
    serials = [report.published.serial for report in desk.finish() if isinstance(report, Checkpointed)]
    assert serials == [4]


def test_a_deleted_topic_soon_frees_its_packs(desk: Desk) -> None:
    """Not only when retention looks the next time."""
    process = desk.process
    process.begin = structs.replace(process.begin, checkpoint_ms=1)
    process.next_retention = time.perf_counter() + 1000
    desk.specs = [PACKED]
    desk.put()
    process.limits = {0: desk.engine.splittable(0)}
    packs = Path(desk.data_dir) / PACKS

    def work(until: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + 120
        while not until():
            assert time.perf_counter() < deadline
            pause = process.work()
            assert pause is not None
            time.sleep(min(pause, 0.01))
            for report in desk.reports():
                if isinstance(report, Checkpointed):
                    process.obey(Seen(report.published.serial))

    work(lambda: any(packs.glob("*.pack")) and not process.splitter.uncheckpointed)
    desk.specs = []
    process.obey(Drop([(PACKED.queue_id, PACKED.directory)]))
    work(lambda: not any(packs.glob("*.pack")))
    assert process.next_retention > time.perf_counter() + 10, "and then it rests again"


def test_a_merge_that_ended_soon_counts(desk: Desk) -> None:
    """Also while nothing else happens: the next merge waits for its checkpoint."""
    process = desk.process
    process.next_retention = time.perf_counter() + 1000
    desk.specs = [PACKED]
    for _ in range(FANOUT):
        desk.put()
        process.limits = {0: desk.engine.splittable(0)}
        process.splitter.split(0, process.limits[0], NOW)
        process.splitter.checkpoint(NOW)
    pause: float | None = None
    for _ in range(100):
        pause = process.work()
        if process.splitter.has_merge:
            break
    assert process.splitter.has_merge and pause is not None and pause <= process.begin.checkpoint_ms / 1000


def test_a_queue_that_cannot_be_compacted_holds_up_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    process = desk.process
    process.begin = structs.replace(process.begin, checkpoint_ms=1)
    compacted = LogConfig(model="dedicated", segment_bytes=200, compact=True, dirty_ratio_min=0.0, retention_ms=-1)
    desk.specs = [structs.replace(SPEC, config=compacted), AGING]
    for _ in range(8):
        desk.put(SPEC.queue_id)
        desk.put(AGING.queue_id)
    process.limits = {0: desk.engine.splittable(0)}

    def fail(sieve: Sieve, batch: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Sieve, "strain", fail)
    deadline, seen = time.perf_counter() + 120, list[Report]()
    while not any(isinstance(report, Damaged) for report in seen):
        assert time.perf_counter() < deadline
        process.work()
        seen += desk.reports()
    process.next_retention = 0.0
    while not any(isinstance(report, Proposals) for report in seen):
        assert time.perf_counter() < deadline
        process.work()
        seen += desk.reports()
    assert [report.what for report in seen if isinstance(report, Damaged)] == [
        "queues/t-0 cannot be compacted, and is retried in an hour: RuntimeError('a defect')"
    ]
    [proposals] = [report for report in seen if isinstance(report, Proposals)]
    assert [start.queue_id for start in proposals.starts] == [AGING.queue_id]


def test_a_ping_is_answered_after_the_reports_of_what_was_done_before(desk: Desk) -> None:
    desk.put()
    desk.process.obey(Advance({0: desk.engine.splittable(0)}))
    desk.process.round()
    desk.process.checkpoint()
    desk.process.obey(Ping(7))
    *before, last = desk.reports()
    assert [type(report) for report in before] == [Split, Checkpointed] and last == Pong(7)
