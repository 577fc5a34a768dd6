"""Removing what is not needed any more: packs, directories, rows and segments on their way out (`leaving`).

Only here and in segment_replacement does the splitter remove what once counted. Each removal first takes its step in
the table, which refuses it before the checkpoint counts and the broker has seen that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import NO_SEGMENTS, pack_name
from cairnmq.storage.segments.queue_log import read_identity, retire_directory, stranger_in
from cairnmq.storage.splitter.leaving import (
    DeletedRow,
    Departures,
    MergedPacks,
    OldDirectory,
    RetiredDirectory,
    Stage,
    Step,
    TrimmedSegments,
)
from cairnmq.storage.splitter.split_packs import SplitPacks
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues


class Reclaim:
    """One splitter's."""

    def __init__(self, disk: Disk, queues: SplitQueues, packs: SplitPacks, departures: Departures) -> None:
        self.disk = disk
        self.queues = queues
        self.packs = packs
        self.departures = departures

    # ------------------------------------------------------------------------------------------------ beginning

    def replace_packs(self, inputs: Sequence[int], output: int | None) -> None:
        """A merge is done; it counts from the next checkpoint on. `inputs` are neighbours in the pack set."""
        self.departures.begin(MergedPacks(tuple(inputs), output))

    def leave(self, queue: SplitQueue) -> None:
        """The directory of a demoted queue goes when nobody reads it any more."""
        if queue.spec.queue_id not in self.leaving_directories():
            self.departures.begin(OldDirectory(queue.spec.queue_id))

    def drop(self, queues: Iterable[tuple[int, str]]) -> None:
        """Topic deletion, (queue id, directory) each: directories are renamed now, removed after a checkpoint."""
        for queue_id, directory in queues:
            self.queues.forget(queue_id)
            if not directory:
                continue
            identity = read_identity(self.disk, directory)  # without one, the queue that claims it retires it
            if identity is not None and identity.queue_id == queue_id:
                self.departures.begin(RetiredDirectory(retire_directory(self.disk, directory, queue_id)))

    def trim(self, dirty: Iterable[SplitQueue]) -> None:
        """Before a checkpoint's rows are made: they hold log starts that have moved."""
        for queue in dirty:
            if queue.state.log_start > queue.checkpointed_start:
                self.departures.begin(TrimmedSegments(queue, queue.state.log_start))

    # ------------------------------------------------------------------------------------- what checkpoints need

    def leaving_directories(self) -> set[int]:
        """Demoted queues whose old directory may still be read."""
        return {what.queue_id for what in self.departures.any_of(OldDirectory)}

    @property
    def has_merge(self) -> bool:
        """Packs are replaced, and no checkpoint says so yet."""
        return bool(self.departures.of(MergedPacks, Stage.REPLACED))

    @property
    def needs_checkpoint(self) -> bool:
        needs = self.departures.needs_checkpoint
        return needs(DeletedRow) or needs(MergedPacks) or needs(OldDirectory)

    def deleted_rows(self) -> list[int]:
        return [what.queue_id for what in self.departures.any_of(DeletedRow)]

    def counted_packs(self) -> list[int]:
        """Those that count once merges do."""
        numbers = self.packs.pack_set.numbers
        for record in self.departures.of(MergedPacks, Stage.REPLACED):
            inputs, output = record.what.inputs, record.what.output
            at = numbers.index(inputs[0])
            numbers[at : at + len(inputs)] = [output] if output is not None else []
        return numbers

    def published(self, serial: int) -> list[int]:
        """The checkpoint is durable, and its report tells the broker of what it must see. Returns the queues whose
        records lie elsewhere now."""
        self.packs.pack_set.replace(self.counted_packs())
        departures = self.departures
        moved = [old.what.queue_id for old in departures.of(OldDirectory, Stage.REPLACED)]
        for kind in (MergedPacks, OldDirectory, RetiredDirectory, TrimmedSegments, DeletedRow):
            departures.publish(kind, serial)
        for row in departures.see(DeletedRow, serial):
            row.take(Step.REMOVE)  # the row was all of it
            departures.end(row)
        return moved

    # ------------------------------------------------------------------------------------------------- removing

    def remove_unread(self, serial: int) -> None:
        """After a checkpoint: what the broker had let go of before the splitter heard of it."""
        departures = self.departures
        for trimmed in departures.see(TrimmedSegments, serial):
            trimmed.take(Step.REMOVE)
            self._remove_below_start(trimmed.what.queue, trimmed.what.log_start)
            departures.end(trimmed)
        for retired in departures.see(RetiredDirectory, serial):
            retired.take(Step.REMOVE)
            self.disk.remove_tree(retired.what.directory)
            departures.end(retired)

    def _remove_below_start(self, queue: SplitQueue, log_start: int) -> None:
        queue.checkpointed_start = log_start
        if queue.segments_from == NO_SEGMENTS:
            return  # a merge leaves them out
        log = queue.log or self.queues.open_log(queue)
        reach("retention-delete")
        log.remove_below(log_start)
        if log.bases and log_start >= queue.state.end:
            log.remove_last()

    def seen(self, serial: int) -> None:
        """The readers go by this checkpoint: what it and those before it have replaced can go."""
        for packs in self.departures.see(MergedPacks, serial):
            packs.take(Step.REMOVE)
            for number in packs.what.inputs:
                self.disk.remove(pack_name(number))
            self.departures.end(packs)
        for old in self.departures.see(OldDirectory, serial):
            queue_id = old.what.queue_id
            queue = self.queues.by_id.get(queue_id)
            if queue is not None and not stranger_in(self.disk, queue.spec.directory, queue_id):
                old.take(Step.REMOVE)
                if self.disk.list(queue.spec.directory):
                    self.disk.remove_tree(retire_directory(self.disk, queue.spec.directory, queue_id))
            self.departures.end(old)
        self.queues.replacements.seen(serial)
