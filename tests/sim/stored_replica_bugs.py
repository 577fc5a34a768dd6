"""Bugs of storage with several replicas, planted one at a time: the simulation must find each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.errors import Refusal
from cairnmq.storage.files.format import StartMoved
from cairnmq.storage.journal import copied_entries
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.journal.synced_end import SyncedEndFile
from cairnmq.storage.live import follow_path, unreplicated
from cairnmq.storage.live.ack_policy import REPLICATED, WRITTEN, AckPoint
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.journal_fold import JournalFold
from cairnmq.storage.live.journal_path import JournalPath
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Write
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.testing.replicas import stored_replica
from cairnmq.testing.replicas.stored_replica import Life
from cairnmq.testing.sim_disk import SimFile

Plant = Callable[[pytest.MonkeyPatch], None]


def follower_folds_above_the_replicated_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalFold, "takes", lambda fold, entry: entry.queue_id < fold.next_queue)


def recovery_folds_all_it_finds(patch: pytest.MonkeyPatch) -> None:
    make = JournalFold.__init__

    def unlimited(fold: JournalFold, *what: object, **more: object) -> None:
        make(fold, *what, **{**more, "limit": 1 << 63})  # type: ignore[arg-type]

    patch.setattr(JournalFold, "__init__", unlimited)


def cut_goes_to_the_durable_end(patch: pytest.MonkeyPatch) -> None:
    """Below the replicated end, where this replica may be the only one that has kept it."""
    truncate = follow_path.truncate
    patch.setattr(follow_path, "truncate", lambda journal, position: truncate(journal, journal.durable_end))


def cut_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    truncate = follow_path.truncate

    def lazy(journal: Journal, position: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimFile, "sync", lambda file: None)
            inner.setattr(type(journal.disk), "sync_dir", lambda disk, name: None)
            truncate(journal, position)

    patch.setattr(follow_path, "truncate", lazy)


def cut_keeps_the_synced_end(patch: pytest.MonkeyPatch) -> None:
    """In the file that says it in a second place."""
    patch.setattr(SyncedEndFile, "lower", lambda file, position: None)


def acks_1_is_visible_when_written(patch: pytest.MonkeyPatch) -> None:
    written = WritePath.written

    def eager(path: WritePath, write: Write) -> list[Queue]:
        advanced = written(path, write)
        for staged in write.staged:
            if staged.visible_at is REPLICATED and staged.queue.pending is None:
                staged.queue.high_watermark = staged.end_offset
        return advanced

    patch.setattr(WritePath, "written", eager)


def moved_start_counts_when_written(patch: pytest.MonkeyPatch) -> None:
    """A later leader may not have it: the log start would fall."""
    written = WritePath.written

    def eager(path: WritePath, write: Write) -> list[Queue]:
        for queue, fact, _ in write.facts:
            if isinstance(fact, StartMoved) and queue is not None:
                queue.move_start(fact.offset)
        return written(path, write)

    patch.setattr(WritePath, "written", eager)


def moved_start_is_told_when_written(patch: pytest.MonkeyPatch) -> None:
    stage_start = WritePath.stage_start

    def hasty(path: WritePath, *what: object) -> AckPoint | Refusal:
        point = stage_start(path, *what)  # type: ignore[arg-type]
        return point if isinstance(point, Refusal) else AckPoint(point.journal, WRITTEN, point.end)

    patch.setattr(WritePath, "stage_start", hasty)


def moved_start_of_an_earlier_leader_is_told_at_once(patch: pytest.MonkeyPatch) -> None:
    """It counts, and not all have it on disk."""
    elected = WritePath.elected

    def forgetful(*what: object, **more: object) -> WritePath:
        path = elected(*what, **more)  # type: ignore[arg-type]
        path._moved_end = 0
        return path

    patch.setattr(WritePath, "elected", forgetful)


def follower_moves_log_starts(patch: pytest.MonkeyPatch) -> None:
    """By its own retention, in live state."""

    def stage_start(path: FollowPath, queue: Queue, offset: int, now_ms: int) -> AckPoint:
        queue.move_start(offset)
        return AckPoint(path.journal.number, REPLICATED, path.journal.end)

    patch.setattr(FollowPath, "stage_start", stage_start)


def follower_writes_its_own_log_starts(patch: pytest.MonkeyPatch) -> None:
    """Into its journal, under the epoch of the leader that it follows."""

    def stage_start(path: FollowPath, queue: Queue, offset: int, now_ms: int) -> AckPoint:
        journal = path.journal
        end = journal.stage_facts(queue.queue_id, [StartMoved(offset)], now_ms)
        group = journal.take()
        assert group is not None
        journal.write(group)
        journal.written(group)
        return AckPoint(journal.number, REPLICATED, end)

    patch.setattr(FollowPath, "stage_start", stage_start)


def undo_is_dropped_at_the_write(patch: pytest.MonkeyPatch) -> None:
    step_down = WritePath.step_down

    def forgetful(path: WritePath, reason: str) -> None:
        path._unreplicated.clear()
        step_down(path, reason)

    patch.setattr(WritePath, "step_down", forgetful)


def undo_forgets_producers(patch: pytest.MonkeyPatch) -> None:
    def undo(writes: object) -> None:
        for write in writes:  # type: ignore[attr-defined]
            for staged in reversed(write.staged):
                staged.queue.state.take_back(staged.offset, staged.epochs_before)

    patch.setattr("cairnmq.storage.live.write_path.undo", undo)


def undo_goes_oldest_first(patch: pytest.MonkeyPatch) -> None:
    undo = unreplicated.undo
    patch.setattr("cairnmq.storage.live.write_path.undo", lambda writes: undo(list(writes)[::-1]))


def duplicate_is_acknowledged_above_the_replicated_end(patch: pytest.MonkeyPatch) -> None:
    stage = WritePath.stage

    def hasty(path: WritePath, *what: object, **more: object) -> Placed | Refusal:
        placed = stage(path, *what, **more)  # type: ignore[arg-type]
        if isinstance(placed, Placed) and placed.is_duplicate:
            return Placed(placed.journal, WRITTEN, path.journal.end, placed.base_offset, -1, True)
        return placed

    patch.setattr(WritePath, "stage", hasty)


def unknown_queue_is_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalFold, "takes", lambda fold, entry: entry.end <= fold.limit)


def claims_of_leaders_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored_replica, "led_here", lambda *what: lambda epoch: True)


def replicated_is_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    replicated_to = WritePath.replicated_to

    def hasty(path: WritePath, position: int) -> list[Queue]:
        return [*replicated_to(path, position), *path.durable_to(position)]

    patch.setattr(WritePath, "replicated_to", hasty)


def own_sync_is_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    synced_to = WritePath.synced_to

    def hasty(path: WritePath, position: int) -> list[Queue]:
        return [*synced_to(path, position), *path.durable_to(min(position, path.journal.replicated_end))]

    patch.setattr(WritePath, "synced_to", hasty)


def replicated_is_split(patch: pytest.MonkeyPatch) -> None:
    """Before all have synced it: a later leader may not have it."""
    patch.setattr(JournalPath, "splittable", lambda path: min(path.journal.synced, path.journal.replicated_end))
    patch.setattr(
        FollowPath,
        "splittable",
        lambda path: min(path.journal.synced, path.journal.replicated_end, path.folded_end),
    )
    patch.setattr(Queue, "split_to", lambda queue, end: None)


def synced_is_split(patch: pytest.MonkeyPatch) -> None:
    """What this disk has, wherever the replicated end is."""
    patch.setattr(JournalPath, "splittable", lambda path: path.journal.synced)
    patch.setattr(Queue, "split_to", lambda queue, end: None)


def part_of_a_group_counts_as_all(patch: pytest.MonkeyPatch) -> None:
    def take(write: Write, position: int) -> Write:
        part = Write(write.group, write.staged, write.facts, None, write.opened)
        write.staged, write.facts, write.opened = [], [], []
        return part

    patch.setattr("cairnmq.storage.live.write_path.take_below", take)


def cut_last_entry_is_written(patch: pytest.MonkeyPatch) -> None:
    runs_of = copied_entries.runs_of

    def eager(data: memoryview, *what: object, **more: object) -> list[copied_entries.Run]:
        runs = runs_of(data, *what, **more)  # type: ignore[arg-type]
        if runs:
            size = sum(len(run.view) for run in runs[:-1])
            runs[-1].view = data[size:]
        return runs

    patch.setattr(follow_path, "runs_of", eager)


def promotion_folds_without_undo(patch: pytest.MonkeyPatch) -> None:
    elected = WritePath.elected

    def forgetful(*what: object, unreplicated: Write, **more: object) -> WritePath:
        unreplicated.staged = []
        return elected(*what, unreplicated=unreplicated, **more)  # type: ignore[arg-type]

    patch.setattr(WritePath, "elected", forgetful)


def promotion_folds_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follow_path, "_stage_again", lambda write, entry, queue, now_ms: None)


def head_of_an_epoch_waits_for_a_record(patch: pytest.MonkeyPatch) -> None:
    """It is staged with the first group: without producers nothing of earlier epochs ever counts."""

    def begin_epoch(journal: Journal, epoch: int, now_ms: int) -> None:
        journal.epoch = journal.synced_file.epoch = epoch
        journal.begin_segment()

    patch.setattr(Journal, "begin_epoch", begin_epoch)


def sync_outlives_a_cut(patch: pytest.MonkeyPatch) -> None:
    cut = Life.cut

    def forgetful(life: Life, to: int) -> bool:
        covers = life.syncing
        reopened = cut(life, to)
        life.syncing = covers
        return reopened

    patch.setattr(Life, "cut", forgetful)
