"""A checkpoint: everything that rounds and maintenance wrote is synced, then one frame says that it counts."""

from __future__ import annotations

from collections.abc import Sequence

from cairnmq.storage.checkpoint.checkpoint import CheckpointLog
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import PACKS, CheckpointRows
from cairnmq.storage.queue.producers import live
from cairnmq.storage.splitter.failed_syncs import CheckpointSync
from cairnmq.storage.splitter.progress import Progress
from cairnmq.storage.splitter.reclaim import Reclaim
from cairnmq.storage.splitter.rounds import Rounds
from cairnmq.storage.splitter.split_packs import SplitPacks
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues


class Checkpointing:
    """One splitter's. The order of its steps is the whole argument (see `splitter`)."""

    def __init__(
        self,
        disk: Disk,
        checkpoints: CheckpointLog,
        queues: SplitQueues,
        packs: SplitPacks,
        rounds: Rounds,
        reclaim: Reclaim,
        progress: Progress,
        sync: CheckpointSync,
    ) -> None:
        self.disk = disk
        self.log = checkpoints
        self.queues = queues
        self.packs = packs
        self.rounds = rounds
        self.reclaim = reclaim
        self.progress = progress
        self.sync = sync

    @property
    def is_due(self) -> bool:
        """There is something that the last checkpoint does not say."""
        changes = self.reclaim.needs_checkpoint or self.queues.replacements.need_checkpoint
        return changes or self.progress.positions != self.progress.checkpointed

    def publish(self, now_ms: int, expiry_ms: int, producer_expiration_ms: int) -> Published:
        """`expiry_ms`: the time by which producers are too old."""
        swapped = self.queues.replacements.into_rows()
        dirty = [queue for queue in self.queues.by_id.values() if queue.dirty]
        self.reclaim.trim(dirty)
        has_files = self._sync(dirty, swapped)
        for queue in dirty:
            queue.state.producers = live(queue.state.producers, expiry_ms, producer_expiration_ms)
        rows = CheckpointRows(
            queues=[queue.to_row() for queue in dirty],
            gone=self.reclaim.deleted_rows(),
            keyed=list(self.rounds.keyed.values()),
            marks=self.rounds.marks(self.log.image.marks),
            time_ms=now_ms,
            packs=self.reclaim.counted_packs() if has_files or self.reclaim.has_merge else None,
        )
        reach("checkpoint-publish")
        self.log.publish(rows)
        published = self._published(dirty)
        reach("checkpoint-report")
        self.reclaim.remove_unread(published.serial)
        # Last of all: a successor of one that fails in here has to ask the broker which checkpoint that goes by.
        self.progress.reported(published.serial)
        return published

    def _sync(self, dirty: Sequence[SplitQueue], names: Sequence[str]) -> bool:
        """False: no file was open that had to be synced."""
        files: list[File] = list(self.packs.unsynced)
        closed: list[str] = []
        directories = dict.fromkeys([*names, *([PACKS, ""] if files or self.reclaim.has_merge else [])])
        for queue in dirty:
            if queue.log is not None:
                opened, others, new_names = queue.log.sync_parts()
                files.extend(opened)
                closed.extend(others)
                directories.update(dict.fromkeys(new_names))
        self.sync.refuse_if_failed()
        reach("checkpoint-sync")
        for part in self.queues.open_logs.parts(self.disk, files, closed, list(directories)):
            self.sync.sync(*part)
        return bool(files)

    def _published(self, dirty: Sequence[SplitQueue]) -> Published:
        """The rows count: so does all that they say. Returns what the broker must hear of it."""
        for queue in dirty:
            queue.dirty = False
            if queue.log is not None:
                queue.log.synced()
        queues, serial = self.queues, self.log.image.serial
        queues.replacements.published()
        queues.written.update(queue.spec.queue_id for queue in dirty if queue.spec.config.compact)
        moved = dict.fromkeys([*self.reclaim.published(serial), *queues.replacements.tell(serial)])
        places = [QueuePlace.of(queues.by_id[queue_id].to_row()) for queue_id in moved if queue_id in queues.by_id]
        self.packs.unsynced = []
        self.rounds.keyed.clear()
        self.progress.published()
        return Published(serial, dict(self.progress.positions), self.packs.pack_set.numbers, places)
