"""Compaction on simulated disks, stopped anywhere; and bugs planted into it, each of which must be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from cairnmq.errors import Fault
from cairnmq.storage.compaction import cleaned_segment
from cairnmq.storage.compaction import job as compaction_job
from cairnmq.storage.compaction import sieve as compaction_sieve
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges
from cairnmq.storage.compaction.sieve import Pass, Sieve, Weaver
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import QueueRow
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.splitter.leaving import Leaving, Stage, Superseded
from cairnmq.storage.splitter.segment_replacement import SegmentReplacements
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues
from cairnmq.testing.oracle import Violation
from sim.compaction_world import World
from sim.planted import find

SEEDS = 60
SEEDS_TO_FIND = 200  # most bugs need a few
STEPS = 400
Plant = Callable[[pytest.MonkeyPatch], None]


def test_nothing_is_lost() -> None:
    passes = strikes = deaths = gathered = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.run(STEPS)
        except (Violation, Fault, AssertionError, FileNotFoundError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        passes, strikes, deaths = passes + world.passes, strikes + world.strikes, deaths + world.deaths
        gathered += world.gathered
    assert passes > 3 * SEEDS and strikes > 2 * SEEDS and deaths > SEEDS, (passes, strikes, deaths)
    assert gathered > SEEDS / 10, gathered


def superseded_segments_go_at_once(patch: pytest.MonkeyPatch) -> None:
    swap_in = QueueLog.swap_in

    def hasty(log: QueueLog, bases: tuple[int, ...]) -> None:
        swap_in(log, bases)
        log.remove_superseded(bases)

    patch.setattr(QueueLog, "swap_in", hasty)


def swaps_are_in_no_row(patch: pytest.MonkeyPatch) -> None:
    into_rows = SegmentReplacements.into_rows

    def forgetful(swaps: SegmentReplacements) -> list[str]:
        directories = into_rows(swaps)
        for record in swaps._departures.of(Superseded, Stage.REPLACED):
            queue = record.what.queue
            queue.compaction = replace(queue.compaction, swaps=())
        return directories

    patch.setattr(SegmentReplacements, "into_rows", forgetful)


def swapped_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    give = SegmentReplacements.give

    def hasty(swaps: SegmentReplacements, queue: object, bases: list[int], end: int) -> None:
        queue.log.swap_in(bases)  # type: ignore[attr-defined]
        queue.log.remove_superseded(bases)  # type: ignore[attr-defined]
        give(swaps, queue, bases[:1], end)  # type: ignore[arg-type]

    patch.setattr(SegmentReplacements, "give", hasty)


def a_pass_begins_before_the_row_forgets_the_last_swap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentReplacements, "busy", lambda swaps, queue: bool(queue.compaction.swaps))


def old_segments_go_before_the_new_names_are_synced(patch: pytest.MonkeyPatch) -> None:
    def remove(log: QueueLog, bases: tuple[int, ...]) -> None:
        for base in bases[1:]:
            log._remove_segment(base)
        log.new_names = True

    patch.setattr(QueueLog, "remove_superseded", remove)


class Unsynced:
    """A disk on which the sync of a compacted file does nothing."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def create(self, name: str) -> object:
        file = self._disk.create(name)

        class Forgetful:
            def __getattr__(self, attribute: str) -> object:
                return (lambda: None) if attribute == "sync" else getattr(file, attribute)

        return Forgetful()


def compacted_files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    begin = compaction_job.CompactionJob.__init__

    def planted(job: compaction_job.CompactionJob, *arguments: object, **named: object) -> None:
        begin(job, *arguments, **named)  # type: ignore[arg-type]
        job.disk = Unsynced(job.disk)  # type: ignore[assignment]

    patch.setattr(compaction_job.CompactionJob, "__init__", planted)


def swaps_are_not_finished_at_a_start(patch: pytest.MonkeyPatch) -> None:
    def opened(swaps: SegmentReplacements, queue: SplitQueue, log: QueueLog) -> None:
        log.remove_unfinished()
        for swap in queue.compaction.swaps:
            swaps._departures.found(Superseded(queue, swap, 0))

    patch.setattr(SegmentReplacements, "opened", opened)


def gathered_segments_count_before_they_are_in_place(patch: pytest.MonkeyPatch) -> None:
    prepend = SegmentReplacements.prepend

    def hasty(swaps: SegmentReplacements, queue: SplitQueue, bases: list[int]) -> None:
        prepend(swaps, queue, bases)
        assert queue.log is not None
        queue.log.prepend(bases)
        queue.segments_from = bases[0]

    patch.setattr(SegmentReplacements, "prepend", hasty)


def what_is_gathered_counts_as_clean(patch: pytest.MonkeyPatch) -> None:
    """As far as the clean end of the queue said: a merge may have moved it that counts later, or a pass elsewhere."""
    into_rows = SegmentReplacements._fronts_into_rows

    def trusting(swaps: SegmentReplacements, given: Sequence[Leaving[Superseded]]) -> None:
        queues = [record.what.queue for record in given]
        before = [(queue, min(queue.compaction.clean_end, queue.segments_from)) for queue in queues]
        into_rows(swaps, given)
        for queue, clean_end in before:
            queue.compaction = replace(queue.compaction, clean_end=clean_end)

    patch.setattr(SegmentReplacements, "_fronts_into_rows", trusting)


def merges_do_not_look_into_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SplitQueues, "stored_aborted", lambda queues, queue: [])


def packs_are_forgotten_before_readers_know_better(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        QueueRow, "needs_packs", property(lambda row: row.log_start < row.packed_end and not row.compaction.swaps)
    )


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    into_rows = SegmentReplacements.into_rows
    patch.setattr(SegmentReplacements, "into_rows", lambda swaps: into_rows(swaps)[:0])


def _courses_with(change: Callable[[Pass], Pass]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        begin = Sieve.__init__
        patch.setattr(Sieve, "__init__", lambda sieve, course: begin(sieve, change(course)))

    return plant


def the_map_forgets_keys(patch: pytest.MonkeyPatch) -> None:
    """It says that a key's newest record is a later one than it is."""
    patch.setattr(compaction_job, "note_keys", lambda keys, batch, aborted: _note_wrong(keys, batch))


def _note_wrong(keys: object, batch: memoryview) -> bool:
    header = compaction_sieve.read_header(batch)
    body = compaction_sieve.body_of(header, batch)
    if header.count and body is not None:
        keys.note(body, header.count, header.last_offset_delta, header.base_offset + 1)  # type: ignore[attr-defined]
    return True


def empty_batches_are_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Weaver, "_release", lambda weaver, timestamp: weaver._waiting.clear() or iter(()))


def aborted_transactions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The rows of the `.txnindex` do not come along."""
    patch.setattr(cleaned_segment, "txn_index_bytes", lambda rows: b"")


def aborted_records_supersede_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedRanges, "hold", lambda ranges, header: False)


def open_transactions_are_compacted(patch: pytest.MonkeyPatch) -> None:
    def note_keys(keys: object, batch: memoryview, aborted: object) -> bool:
        return compaction_sieve.note_keys(keys, batch, aborted)  # type: ignore[arg-type]

    patch.setattr(compaction_job, "note_keys", note_keys)
    patch.setattr(QueueState, "open_transactions", property(lambda state: {}))


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        superseded_segments_go_at_once,
        swaps_are_in_no_row,
        swapped_before_the_checkpoint,
        a_pass_begins_before_the_row_forgets_the_last_swap,
        old_segments_go_before_the_new_names_are_synced,
        compacted_files_are_not_synced,
        swaps_are_not_finished_at_a_start,
        gathered_segments_count_before_they_are_in_place,
        what_is_gathered_counts_as_clean,
        merges_do_not_look_into_segments,
        packs_are_forgotten_before_readers_know_better,
        names_are_not_synced,
        the_map_forgets_keys,
        empty_batches_are_left_out,
        aborted_transactions_are_forgotten,
        aborted_records_supersede_others,
        open_transactions_are_compacted,
    )
} | {
    "tombstones_go_at_once": _courses_with(lambda course: replace(course, delete_retention_ms=0)),
    "producers_are_forgotten": _courses_with(lambda course: replace(course, producers={})),
}


KNOWN = {
    "a_pass_begins_before_the_row_forgets_the_last_swap": 12,
    "gathered_segments_count_before_they_are_in_place": 9,
    "merges_do_not_look_into_segments": 63,
    "names_are_not_synced": 52,
    "producers_are_forgotten": 21,
    "superseded_segments_go_at_once": 145,
    "swapped_before_the_checkpoint": 26,
    "swaps_are_not_finished_at_a_start": 9,
    "what_is_gathered_counts_as_clean": 63,
}
"""Which seed finds a bug, where it is not one of the first."""


@pytest.mark.parametrize("bug", BUGS)
def test_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    find(lambda seed: World(seed).run(STEPS), SEEDS_TO_FIND, KNOWN.get(bug))
