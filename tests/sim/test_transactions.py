"""Transactions on the simulated machine: seeds that must stay clean, and planted bugs that must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from msgspec.structs import replace

from cairnmq.storage.batches.markers import Marker, check_marker
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, CheckpointLog, load_checkpoint
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace, Resume, Round
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.format import Aborted, CheckpointRows, ProducerRow, QueueRow
from cairnmq.storage.live import write_path
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.queue import state as queue_state
from cairnmq.storage.queue.producers import after_marker
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.queue.transactions import Transactions
from cairnmq.storage.recovery import stored_split
from cairnmq.storage.recovery.stored_split import new_place
from cairnmq.storage.segments import queue_log
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.segments.queue_reader import QueueReader
from cairnmq.storage.splitter.checkpointing import Checkpointing
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues
from cairnmq.testing.sim_machine import Tally
from cairnmq.testing.sim_transactions import TransactionWorld
from sim.planted import find

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 60
STEPS = 400


@pytest.mark.parametrize("first", range(1000, 1040, 10))
def test_no_crash_breaks_a_promise(first: int) -> None:
    total = Tally()
    for seed in range(first, first + 10):
        try:
            total.add(TransactionWorld(seed).run(STEPS))
        except Exception as error:
            error.add_note(f"seed {seed} of TransactionWorld")
            raise
    assert total.crash_points > 1000
    assert min(total.failed_writes, total.splitter_deaths, total.unsplits) > 0


def test_every_single_operation_is_a_crash_point() -> None:
    assert TransactionWorld(4242, branch_share=1.0).run(250).crash_points > 300


def marker_counts_before_it_is_visible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueState, "ends", lambda state, first, marker: None)


def last_stable_is_the_visible_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "last_stable", property(lambda queue: queue.high_watermark))


def failed_write_keeps_its_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transactions, "take_back", lambda transactions, end: None)


def failed_write_keeps_transactions_ended(patch: pytest.MonkeyPatch) -> None:
    def restore(state: QueueState, producer_id: int, before: ProducerRow | None) -> None:
        if before is not None:
            state.producers[producer_id] = before
        else:
            state.producers.pop(producer_id, None)

    patch.setattr(QueueState, "restore", restore)


def marker_leaves_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def after(known: ProducerRow | None, pid: int, epoch: int, coordinator: int, now: int) -> ProducerRow:
        return after_marker(known, pid, known.epoch if known is not None else epoch, coordinator, now)

    patch.setattr(queue_state, "after_marker", after)


def late_marker_ends_a_later_transaction(patch: pytest.MonkeyPatch) -> None:
    def check(known: ProducerRow | None, marker: Marker, epoch: int) -> object:
        return check_marker(known, replace(marker, transaction_version=1), epoch)

    patch.setattr(write_path, "check_marker", check)


def rows_of_aborted_not_synced(patch: pytest.MonkeyPatch) -> None:
    note = QueueLog._note_aborted

    def unsynced(log: QueueLog, rows: Iterable[Aborted]) -> None:
        before = set(log._unsynced)
        note(log, rows)
        log._unsynced = before

    patch.setattr(QueueLog, "_note_aborted", unsynced)


def rows_of_aborted_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueLog, "_cut_aborted", lambda log, base, offset: None)


def rows_of_aborted_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_log, "txn_index_bytes", lambda rows: b"")


def reader_knows_only_old_files(patch: pytest.MonkeyPatch) -> None:
    saw = QueueReader.saw_segment
    patch.setattr(QueueReader, "saw_segment", lambda reader, base, *, aborted=False: saw(reader, base))
    patch.setattr(Queue, "learn_sums", lambda queue, sums: None)  # they would lead it to the new ones


def demotion_forgets_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SplitQueues, "stored_aborted", lambda queues, queue: [])


def unsplit_forgets_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "recall_aborted", lambda queue, rows: None)


def checkpoint_found_without_aborted(patch: pytest.MonkeyPatch) -> None:
    """Its report was lost, and the broker takes over where the records are, but not which count."""

    def place(queue: Queue, image: CheckpointImage, touched: set[int]) -> QueuePlace | None:
        found = new_place(queue, image, touched)
        return replace(found, aborted=()) if found is not None else None

    patch.setattr(stored_split, "new_place", place)


def lost_report_stays_lost(patch: pytest.MonkeyPatch) -> None:
    """As it was once: a successor goes on behind a checkpoint that the broker never heard of, and rounds tell it in
    passing that a queue is in packs now."""
    scan, resume, on_round = Engine.scan_split, Engine.resume, Engine.on_round

    def resume_anyway(self: Engine) -> Resume:
        return replace(resume(self), serial=load_checkpoint(self.read_disk).serial)

    def obey(self: Engine, done: Round) -> None:
        on_round(self, done)
        self.pack_set.replace([*load_checkpoint(self.read_disk).packs, *self._resume.packs])
        for split in done.queues:
            if split.queue_id in self.queues:
                self.queues[split.queue_id].segments_from = split.segments_from

    patch.setattr(
        Engine, "scan_split", lambda self, *, is_suspect=False: scan(self, is_suspect=True) if is_suspect else None
    )
    patch.setattr(Engine, "resume", resume_anyway)
    patch.setattr(Engine, "on_round", obey)


def checkpoint_counts_as_reported_before_it_is(patch: pytest.MonkeyPatch) -> None:
    """What fails behind the publish then goes on in the same process, and the broker does not know of it."""
    publish = Checkpointing._published

    def early(checkpointing: Checkpointing, dirty: Sequence[SplitQueue]) -> Published:
        published = publish(checkpointing, dirty)
        checkpointing.progress.reported(published.serial)
        return published

    patch.setattr(Checkpointing, "_published", early)


def _rows_with(change: Callable[[QueueRow], QueueRow]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        publish = CheckpointLog.publish

        def changed(log: CheckpointLog, rows: CheckpointRows) -> None:
            publish(log, replace(rows, queues=[change(row) for row in rows.queues]))

        patch.setattr(CheckpointLog, "publish", changed)

    return plant


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        marker_counts_before_it_is_visible,
        last_stable_is_the_visible_end,
        failed_write_keeps_its_markers,
        failed_write_keeps_transactions_ended,
        marker_leaves_the_epoch,
        late_marker_ends_a_later_transaction,
        rows_of_aborted_not_synced,
        rows_of_aborted_not_cut,
        rows_of_aborted_not_written,
        reader_knows_only_old_files,
        demotion_forgets_aborted,
        unsplit_forgets_aborted,
        checkpoint_found_without_aborted,
        lost_report_stays_lost,
        checkpoint_counts_as_reported_before_it_is,
    )
} | {
    "aborted_not_stored": _rows_with(lambda row: replace(row, aborted=())),
    "open_not_stored": _rows_with(
        lambda row: replace(row, producers=tuple(replace(p, txn_start=-1) for p in row.producers))
    ),
}


KNOWN = {
    "checkpoint_found_without_aborted": 6,
    "demotion_forgets_aborted": 6,
    "failed_write_keeps_its_markers": 13,
    "reader_knows_only_old_files": 13,
    "rows_of_aborted_not_cut": 3,
}
"""Which seed finds a bug, where it is not one of the first."""


@pytest.mark.parametrize("bug", BUGS)
def test_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    find(lambda seed: TransactionWorld(seed).run(STEPS), SEEDS, KNOWN.get(bug))
