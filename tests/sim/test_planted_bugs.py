"""The simulation finds bugs: each of these is planted into storage and must be found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from msgspec.structs import replace

from cairnmq.errors import Refusal
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.checkpoint.checkpoint import CheckpointLog
from cairnmq.storage.checkpoint.split_report import Published, Resume
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.files.format import NO_SEGMENTS, CheckpointRows, QueueRow, homes_of, journal_segment, pack_name
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.live import reads
from cairnmq.storage.live.ack_lines import AckLines, Released
from cairnmq.storage.live.ack_policy import DURABLE, REPLICATED, AckPoint
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Write
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.maintenance import pack_merge, repair
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.maintenance.segment_restore import restore_segment
from cairnmq.storage.packs.pack import PackReader, PackWriter
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery import found_storage, replay, witness
from cairnmq.storage.recovery.clean_stop import CleanStop
from cairnmq.storage.recovery.owner import OwnerWitness
from cairnmq.storage.recovery.replay import Scan
from cairnmq.storage.recovery.witness import Known, Metadata
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.segments.segment import LOG, segment_name
from cairnmq.storage.splitter import split_packs
from cairnmq.storage.splitter.failed_syncs import CheckpointSync
from cairnmq.storage.splitter.reclaim import Reclaim
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.testing.campaign import run_seed
from cairnmq.testing.sim_disk import SimDisk, SimFile
from cairnmq.types import Counters
from sim.planted import find

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 100


def ack_before_sync(patch: pytest.MonkeyPatch) -> None:
    def when_durable(lines: AckLines, position: int, released: Released) -> None:
        lines.when_written(position, released)

    patch.setattr(AckLines, "when_durable", when_durable)


def ack_before_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AckLines, "when_written", lambda lines, position, released: released(True))


def start_told_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Who finds the log start where it is wanted is told so, although the move is only written."""
    stage_start = WritePath.stage_start

    def eager(path: WritePath, queue: Queue, offset: int, now_ms: int) -> AckPoint | Refusal:
        told = AckPoint(path.journal.number, DURABLE, 0)
        return told if offset <= queue.log_start else stage_start(path, queue, offset, now_ms)

    patch.setattr(WritePath, "stage_start", eager)


def visible_before_sync(patch: pytest.MonkeyPatch) -> None:
    written = WritePath.written

    def eager(path: WritePath, write: object) -> object:
        advanced = written(path, write)  # type: ignore[arg-type]
        for staged in write.staged:  # type: ignore[attr-defined]
            staged.queue.high_watermark = staged.queue.end
        return advanced

    patch.setattr(WritePath, "written", eager)


def journal_sync_that_does_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "sync", lambda journal: journal.end)


def journal_sync_without_the_name(patch: pytest.MonkeyPatch) -> None:
    def sync(journal: Journal) -> int:
        target = journal.end
        for segment in journal.segments:
            segment.file.sync()
            segment.name_synced = True
        return target

    patch.setattr(Journal, "sync", sync)


def sync_reports_what_came_later(patch: pytest.MonkeyPatch) -> None:
    """A sync vouches for bytes written after it began."""
    sync = Journal.sync

    def late(journal: Journal) -> int:
        sync(journal)
        return journal.segments[-1].end if journal.segments else journal.end

    def written(journal: Journal, position: int) -> None:
        journal.synced = max(journal.synced, position)

    patch.setattr(Journal, "sync", late)
    patch.setattr(Journal, "synced_to", written)


def synced_end_said_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    sync = Journal.sync

    def hasty(journal: Journal) -> int:
        journal.synced_file.put(journal.end)
        return sync(journal)

    patch.setattr(Journal, "sync", hasty)


def synced_end_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalReader, "synced_end", lambda reader: 0)


def queues_behind_damage_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(found_storage, "cut_short", lambda queues, scan, homes: None)


def checkpoint_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimDisk, "sync_files", lambda disk, files, directories=(): None)


def checkpoint_without_names(patch: pytest.MonkeyPatch) -> None:
    def sync_files(disk: SimDisk, files: Iterable[object], directories: object = ()) -> None:
        for file in files:
            file.sync()  # type: ignore[attr-defined]

    patch.setattr(SimDisk, "sync_files", sync_files)


def names_in_the_root_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync_dir = SimDisk.sync_dir
    patch.setattr(SimDisk, "sync_dir", lambda disk, name: sync_dir(disk, name) if name else None)


class Unsynced:
    """A file whose sync does nothing."""

    def __init__(self, file: File) -> None:
        self.append, self.close, self.name = file.append, file.close, file.name

    def sync(self) -> None:
        pass


def checkpoint_published_unsynced(patch: pytest.MonkeyPatch) -> None:
    publish = CheckpointLog.publish

    def planted(log: CheckpointLog, rows: CheckpointRows) -> None:
        if log._file is not None and not isinstance(log._file, Unsynced):
            log._file = Unsynced(log._file)  # type: ignore[assignment]
        publish(log, rows)

    patch.setattr(CheckpointLog, "publish", planted)


def split_beyond_synced(patch: pytest.MonkeyPatch) -> None:
    """The engine's own assertion is taken out too, so that the oracle has to find it."""
    patch.setattr(WritePath, "splittable", lambda path: path.journal.end)
    on_round = Engine.on_round

    def trusting(engine: Engine, done: object) -> None:
        journal = engine.paths[done.journal].journal  # type: ignore[attr-defined]
        kept, journal.synced = journal.synced, journal.end
        on_round(engine, done)  # type: ignore[arg-type]
        journal.synced = kept

    patch.setattr(Engine, "on_round", trusting)


def _rows_with(change: Callable[[QueueRow], QueueRow]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        to_row = QueueState.to_row
        patch.setattr(QueueState, "to_row", lambda state, *where: change(to_row(state, *where)))

    return plant


def keyed_facts_not_stored(patch: pytest.MonkeyPatch) -> None:
    publish = CheckpointLog.publish

    def forgetful(log: CheckpointLog, rows: CheckpointRows) -> None:
        publish(log, replace(rows, keyed=[]))

    patch.setattr(CheckpointLog, "publish", forgetful)


def only_the_last_segment_synced_at_start(patch: pytest.MonkeyPatch) -> None:
    def cut(disk: Disk, reader: JournalReader, scan: Scan) -> None:
        for base in reversed(reader.bases):
            name = journal_segment(reader.number, base)
            if base >= scan.end:
                disk.remove(name)
                continue
            file = disk.open(name, write=True)
            file.truncate(min(file.size(), scan.end - base))
            file.sync()
            break
        disk.sync_dir(str(reader.number))
        reader.refresh()

    patch.setattr(replay, "_cut", cut)


def torn_tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replay, "_cut", lambda disk, reader, scan: None)


def journal_deleted_beyond_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def on_checkpoint(engine: Engine, published: Published) -> None:
        for number in published.positions:
            journal = engine.paths[number].journal
            journal.remove_below(journal.synced)

    patch.setattr(Engine, "on_checkpoint", on_checkpoint)


def successor_trusts_unsynced_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueLog, "_mark_unsynced", lambda log, checkpointed_end: None)


def deleted_files_go_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Reclaim, dirty: Iterable[SplitQueue]) -> None:
        for queue in dirty:
            if queue.state.log_start > queue.checkpointed_start:
                self._remove_below_start(queue, queue.state.log_start)

    patch.setattr(Reclaim, "trim", hasty)


def failed_write_keeps_its_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueState, "take_back", lambda state, end, epochs: None)


def failed_write_keeps_its_sequences(patch: pytest.MonkeyPatch) -> None:
    failed = WritePath.failed

    def forgetful(path: WritePath, write: object, reason: str) -> None:
        for staged in [*write.staged, *path._staged]:  # type: ignore[attr-defined]
            staged.producer_id = -1
        failed(path, write, reason)  # type: ignore[arg-type]

    patch.setattr(WritePath, "failed", forgetful)


def failed_journal_sync_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replay, "_write_again", lambda disk, reader, start, end: None)


def failed_journal_sync_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "rewrite_unsynced", lambda journal: journal._sync())


def failed_checkpoint_sync_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CheckpointSync, "refuse_if_failed", lambda self: None)


def interval_never_synced(patch: pytest.MonkeyPatch) -> None:
    def plan(path: WritePath, queue: object, count: int, acks: int, level: object, now_ms: int) -> None:
        if acks:
            path._staged_sync_by_ms = now_ms

    patch.setattr(WritePath, "_plan_sync", plan)


class UnsyncedPack(PackWriter):
    """Its sync does nothing."""

    @property
    def file(self) -> File:
        return Unsynced(super().file)  # type: ignore[return-value]


def merged_pack_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pack_merge, "PackWriter", UnsyncedPack)


def new_packs_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(split_packs, "PackWriter", UnsyncedPack)


def merged_packs_go_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    replace_packs = Reclaim.replace_packs

    def hasty(self: Reclaim, inputs: Sequence[int], output: int | None) -> None:
        replace_packs(self, inputs, output)
        for number in inputs:
            self.disk.remove(pack_name(number))

    patch.setattr(Reclaim, "replace_packs", hasty)


def successor_forgets_packs(patch: pytest.MonkeyPatch) -> None:
    resume = Engine.resume
    patch.setattr(Engine, "resume", lambda engine: Resume(resume(engine).positions))


def clean_stop_not_consumed(patch: pytest.MonkeyPatch) -> None:
    """As the checkpoint of version 1 said it: whatever was appended since, the stop still counts as a clean one."""
    patch.setattr(found_storage, "forget_clean_stop", lambda disk: None)
    patch.setattr(CleanStop, "counts", lambda stop, last_epoch, ends: True)


def packs_not_in_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    publish = CheckpointLog.publish

    def forgetful(log: CheckpointLog, rows: CheckpointRows) -> None:
        publish(log, replace(rows, packs=None))

    patch.setattr(CheckpointLog, "publish", forgetful)


def demoted_directory_goes_at_once(patch: pytest.MonkeyPatch) -> None:
    leave = Reclaim.leave

    def hasty(self: Reclaim, queue: SplitQueue) -> None:
        leave(self, queue)
        self.disk.remove_tree(queue.spec.directory)

    patch.setattr(Reclaim, "leave", hasty)


def _files_not_synced(ending: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        sync = SimFile.sync
        patch.setattr(SimFile, "sync", lambda file: None if file.name.endswith(ending) else sync(file))

    return plant


def mended_journal_without_its_name(patch: pytest.MonkeyPatch) -> None:
    mend = Journal.rewrite_unsynced

    def nameless(journal: Journal) -> int:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimDisk, "sync_dir", lambda disk, name: None)
            return mend(journal)

    patch.setattr(Journal, "rewrite_unsynced", nameless)


def doubt_forgotten_before_it_is_mended(patch: pytest.MonkeyPatch) -> None:
    mend = Journal.rewrite_unsynced

    def hasty(journal: Journal) -> int:
        journal.disk.remove(unsynced_name(str(journal.number)))
        return mend(journal)

    patch.setattr(Journal, "rewrite_unsynced", hasty)


def mended_pack_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "PackWriter", UnsyncedPack)


def damaged_pack_goes_at_once(patch: pytest.MonkeyPatch) -> None:
    repair_pack = Repairer.repair_pack

    def hasty(repairer: Repairer, number: int) -> None:
        repair_pack(repairer, number)
        repairer.disk.remove(pack_name(number))

    patch.setattr(Repairer, "repair_pack", hasty)


def damaged_table_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PackReader, "_checked", lambda pack, index, rows: rows)


def damaged_segment_goes_first(patch: pytest.MonkeyPatch) -> None:
    def hasty(disk: Disk, directory: str, base: int, *rest: object) -> None:
        restore_segment(disk, directory, base, *rest)  # type: ignore[arg-type]
        name = segment_name(directory, base, LOG)
        data = disk.open(name).read(0, disk.open(name).size())
        disk.remove(name)
        file = disk.create(name)
        file.append([data])
        file.sync()
        disk.sync_dir(directory)

    patch.setattr(repair, "restore_segment", hasty)


def empty_batches_alone(patch: pytest.MonkeyPatch) -> None:
    """kafkajs does not move on when a fetch gives it these and nothing else."""
    patch.setattr(reads, "only_empty", lambda batches: False)


def import_visible_before_sync(patch: pytest.MonkeyPatch) -> None:
    stage_kept = WritePath.stage_kept

    def eager(path: WritePath, *what: object) -> object:
        staged = stage_kept(path, *what)  # type: ignore[arg-type]
        for each in path._staged:
            each.visible_at = REPLICATED
        return staged

    patch.setattr(WritePath, "stage_kept", eager)


def import_opens_without_a_fact(patch: pytest.MonkeyPatch) -> None:
    stage_kept = WritePath.stage_kept

    def forgetful(path: WritePath, queue: Queue, batches: Sequence[memoryview], span: Span, now_ms: int) -> object:
        if queue.state.end == 0 < span.start and path.stopped is None:
            queue.state.end = span.start
            path._opened.append((queue, span.start, path.journal.staged_end))
        return stage_kept(path, queue, batches, span, now_ms)

    patch.setattr(WritePath, "stage_kept", forgetful)


def failed_import_leaves_the_queue_open(patch: pytest.MonkeyPatch) -> None:
    failed = WritePath.failed

    def forgetful(path: WritePath, write: Write, reason: str) -> None:
        write.opened, path._opened = [], []
        failed(path, write, reason)

    patch.setattr(WritePath, "failed", forgetful)


def import_leaves_gaps_out(patch: pytest.MonkeyPatch) -> None:
    def leap(path: WritePath, queue: Queue, end: int, timestamp: int, now_ms: int) -> int:
        queue.state.end = max(end, queue.state.end)
        return 0

    patch.setattr(WritePath, "_stage_gap", leap)


def opened_queue_not_replayed(patch: pytest.MonkeyPatch) -> None:
    move_start = QueueState.move_start

    def forgetful(state: QueueState, offset: int) -> None:
        end = state.end
        move_start(state, offset)
        state.end = end

    patch.setattr(QueueState, "move_start", forgetful)


def epoch_committed_before_it_is_compared(patch: pytest.MonkeyPatch) -> None:
    """Each start that is refused raises it, until one gets in."""
    begin = witness.begin

    def hasty(metadata: Metadata, known: Known, keep: Callable[[Counters], None]) -> int:
        metadata.next_epoch()
        return begin(metadata, known, keep)

    patch.setattr(witness, "begin", hasty)


def epochs_alone_compared(patch: pytest.MonkeyPatch) -> None:
    older = witness.older

    def lenient(metadata: Counters, known: Known) -> str | None:
        return older(metadata, Known(Counters(known.floor.epoch)))

    patch.setattr(witness, "older", lenient)


def _floor_without(**forgotten: int) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        floor = Known.floor.fget  # type: ignore[attr-defined]
        patch.setattr(Known, "floor", property(lambda known: replace(floor(known), **forgotten)))

    return plant


def witness_not_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    witness_fact = witness.witness_fact
    patch.setattr(witness, "witness_fact", lambda counters: witness_fact(Counters()))


def witness_not_in_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    publish = CheckpointLog.publish

    def planted(log: CheckpointLog, rows: CheckpointRows) -> None:
        publish(log, replace(rows, keyed=[fact for fact in rows.keyed if fact.space != witness.SPACE]))

    patch.setattr(CheckpointLog, "publish", planted)


def witness_not_in_the_owner_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnerWitness, "keep", lambda owner, counters: None)


def witness_written_before_the_metadata_are_compared(patch: pytest.MonkeyPatch) -> None:
    begin = witness.begin

    def hasty(metadata: Metadata, known: Known, keep: Callable[[Counters], None]) -> int:
        keep(metadata.counters())
        return begin(metadata, known, keep)

    patch.setattr(witness, "begin", hasty)


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        ack_before_sync,
        ack_before_write,
        start_told_before_sync,
        visible_before_sync,
        journal_sync_that_does_not,
        journal_sync_without_the_name,
        sync_reports_what_came_later,
        synced_end_said_before_the_sync,
        synced_end_not_looked_at,
        queues_behind_damage_not_marked,
        checkpoint_before_sync,
        checkpoint_without_names,
        names_in_the_root_not_synced,
        checkpoint_published_unsynced,
        split_beyond_synced,
        keyed_facts_not_stored,
        only_the_last_segment_synced_at_start,
        torn_tail_not_cut,
        journal_deleted_beyond_the_checkpoint,
        successor_trusts_unsynced_logs,
        deleted_files_go_before_the_checkpoint,
        failed_write_keeps_its_offsets,
        failed_write_keeps_its_sequences,
        failed_journal_sync_forgotten,
        failed_journal_sync_repeated,
        failed_checkpoint_sync_repeated,
        interval_never_synced,
        merged_pack_not_synced,
        new_packs_not_synced,
        merged_packs_go_before_the_checkpoint,
        successor_forgets_packs,
        packs_not_in_the_checkpoint,
        clean_stop_not_consumed,
        demoted_directory_goes_at_once,
        mended_journal_without_its_name,
        doubt_forgotten_before_it_is_mended,
        mended_pack_not_synced,
        damaged_pack_goes_at_once,
        damaged_table_believed,
        damaged_segment_goes_first,
        empty_batches_alone,
        import_visible_before_sync,
        import_opens_without_a_fact,
        failed_import_leaves_the_queue_open,
        import_leaves_gaps_out,
        opened_queue_not_replayed,
        epoch_committed_before_it_is_compared,
        epochs_alone_compared,
        witness_not_in_the_journal,
        witness_not_in_the_checkpoint,
        witness_not_in_the_owner_file,
        witness_written_before_the_metadata_are_compared,
    )
} | {
    "epochs_not_raised_above_the_witness": _floor_without(epoch=0),
    "queue_ids_not_reserved_above_the_witness": _floor_without(next_queue_id=1),
    "producer_ids_not_reserved_above_the_witness": _floor_without(next_producer_id=0),
    "revision_not_raised_to_the_witness": _floor_without(revision=0),
    "mended_journal_not_synced": _files_not_synced(".jnl.new"),
    "mended_segment_not_synced": _files_not_synced(".log.new"),
    "producers_not_stored": _rows_with(lambda row: replace(row, producers=())),
    "epochs_not_stored": _rows_with(lambda row: replace(row, epochs=())),
    "log_start_not_stored": _rows_with(lambda row: replace(row, log_start=0)),
    "promotion_not_stored": _rows_with(lambda row: replace(row, homes=homes_of(NO_SEGMENTS))),
    "end_of_an_empty_queue_not_stored": _rows_with(
        lambda row: replace(row, end=0, log_start=0) if row.end == row.log_start else row
    ),
}


KNOWN = {
    "damaged_table_believed": 2,
    "doubt_forgotten_before_it_is_mended": 30,
    "failed_import_leaves_the_queue_open": 45,
    "failed_journal_sync_forgotten": 11,
    "interval_never_synced": 20,
    "queue_ids_not_reserved_above_the_witness": 2,
    "start_told_before_sync": 20,
}
"""Which seed finds a bug, where it is not one of the first."""


@pytest.mark.parametrize("bug", BUGS)
def test_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    find(run_seed, SEEDS, KNOWN.get(bug))
