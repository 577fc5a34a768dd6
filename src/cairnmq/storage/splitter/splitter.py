"""The splitter: journal bytes, sorted by queue, into packs and queue logs; then the checkpoint that makes it count.

Order is the whole argument: nothing is split before it is synced in the journal; nothing is checkpointed before it is
synced on the read disk; nothing is deleted before a checkpoint says that it may be. So after a crash everything behind
the checkpoint can be thrown away and split again.

The parts: `rounds` writes, `checkpointing` makes it count, `reclaim` removes what has left (`leaving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, CheckpointLog
from cairnmq.storage.checkpoint.split_report import Published, Resume, Round
from cairnmq.storage.files.damage import Place
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import NO_SEGMENTS, QUEUES, Aborted, Entry, PackLabel
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.open_logs import OPEN_FILES_MAX
from cairnmq.storage.segments.queue_log import QueueLog, read_identity
from cairnmq.storage.splitter.checkpointing import Checkpointing
from cairnmq.storage.splitter.demotion import demote
from cairnmq.storage.splitter.failed_syncs import CheckpointSync, FailedSync
from cairnmq.storage.splitter.leaving import Departures
from cairnmq.storage.splitter.placement import Thresholds, wants_packs
from cairnmq.storage.splitter.progress import Progress
from cairnmq.storage.splitter.reclaim import Reclaim
from cairnmq.storage.splitter.rounds import Rounds
from cairnmq.storage.splitter.split_packs import SplitPacks
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import Resolve, SplitQueues

ROUND_BYTES = 16 << 20


class Splitter:
    """Synchronous; one owner. A successor of a splitter that died alone calls `replay` first.

    Its owner drives it by `split`, `checkpoint`, `seen`, `drop` and `configure`. Maintenance, repair and compaction see
    it as `split_records` says.
    """

    def __init__(
        self,
        journal_disk: Disk,
        read_disk: Disk,
        image: CheckpointImage,
        resolve: Resolve,
        *,
        journals: Iterable[int],
        resume: Resume | None = None,
        round_bytes: int = ROUND_BYTES,
        producer_expiration_ms: int = 86_400_000,
        thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.progress = progress = Progress(image, journals, resume)
        self.journal_disk = journal_disk
        self.read_disk = read_disk
        self.image = image
        self.producer_expiration_ms = producer_expiration_ms
        checkpoints, departures = CheckpointLog(read_disk, image), Departures()
        self.checkpoints = checkpoints
        packs = self._packs = SplitPacks(read_disk, checkpoints, progress.resume.packs)
        queues = self._queues = SplitQueues(read_disk, checkpoints, resolve, progress, departures, open_files_max)
        self._sync = CheckpointSync(read_disk)
        self.rounds = Rounds(journal_disk, queues, packs, progress, round_bytes=round_bytes, thresholds=thresholds)
        self.reclaim = Reclaim(read_disk, queues, packs, departures)
        self._checkpointing = Checkpointing(
            read_disk, checkpoints, queues, packs, self.rounds, self.reclaim, progress, self._sync
        )
        self.positions = progress.positions
        self.queues = queues.by_id
        self.pack_set = packs.pack_set
        self.spares = packs.spares
        self.damages: list[tuple[int, Place]] = queues.damages
        self.written = queues.written
        self.replacements = queues.replacements

    # ------------------------------------------------------------------------------------------- for its owner

    @property
    def failed_sync(self) -> FailedSync | None:
        """Why nothing may be split or checkpointed before the broker is back at the checkpoint."""
        return self._sync.failed

    @property
    def uncheckpointed(self) -> bool:
        return self._checkpointing.is_due

    def replay(self, now_ms: int) -> None:
        """What a predecessor had split and reported is taken over; the next checkpoint syncs what it wrote."""
        self.rounds.replay(now_ms)
        self._find_left()
        for queue in self.queues.values():
            if queue.dirty and queue.log is None and queue.segments_from != NO_SEGMENTS:
                self.open_log(queue)
        self._packs.sync_again(self.progress.resume.packs)

    def _find_left(self) -> None:
        """Directories of queues that the predecessor demoted: it may not have lived to say so."""
        for name in self.read_disk.list(QUEUES):
            directory = f"{QUEUES}/{name}"
            identity = read_identity(self.read_disk, directory)
            queue = self.learn(identity.queue_id) if identity is not None else None
            if queue is not None and queue.segments_from == NO_SEGMENTS and queue.spec.directory == directory:
                self.reclaim.leave(queue)

    def resume(self) -> Resume:
        """What a successor of this splitter would need now."""
        return self.progress.resume.copy()

    def split(self, journal: int, limit: int, now_ms: int) -> Round | None:
        """One round towards `limit` = min(replicated end, synced end). None when there is nothing to do."""
        self._sync.refuse_if_failed()
        return self.rounds.split(journal, limit, now_ms)

    def checkpoint(self, now_ms: int, *, expiry_ms: int | None = None, clean: bool = False) -> Published:
        """Syncs the read disk, then publishes. `expiry_ms`: by which time producers are too old, if not by `now_ms`."""
        aged_ms = now_ms if expiry_ms is None else expiry_ms
        return self._checkpointing.publish(now_ms, aged_ms, self.producer_expiration_ms, clean=clean)

    def seen(self, serial: int) -> None:
        """The readers go by this checkpoint: what it and those before it have replaced can go."""
        self.reclaim.seen(serial)

    def drop(self, queues: Iterable[tuple[int, str]]) -> None:
        """Topic deletion, (queue id, directory) each."""
        self.reclaim.drop(queues)

    def configure(self, spec: QueueSpec) -> None:
        self._queues.configure(spec)

    def close(self) -> None:
        self._queues.close()
        self.rounds.close()
        self.checkpoints.close()

    # --------------------------------------------------------------------------------------- as split_records

    @property
    def has_merge(self) -> bool:
        return self.reclaim.has_merge

    def specs(self, queue_ids: list[int]) -> list[QueueSpec]:
        return self._queues.resolve(queue_ids)

    def learn(self, queue_id: int) -> SplitQueue | None:
        return self._queues.learn(queue_id)

    def open_log(self, queue: SplitQueue) -> QueueLog:
        return self._queues.open_log(queue)

    def stored(self, queue: SplitQueue, end: int | None = None) -> Iterator[Entry]:
        return self._queues.stored(queue, end)

    def stored_aborted(self, queue: SplitQueue) -> list[Aborted]:
        return self._queues.stored_aborted(queue)

    def note_damage(self, spec: QueueSpec, error: Corrupt | Unreadable) -> None:
        self._queues.note_damage(spec, error)

    def note_foreign(self, directory: str, queue_id: int, why: str) -> None:
        self.damages.append((queue_id, Place(directory, -1, why=why)))

    def wants_packs(self, queue: SplitQueue, size: int) -> bool:
        return wants_packs(queue.spec.config.model, size, self._queues.segmented, self.rounds.thresholds)

    def take_label(self) -> PackLabel:
        return self._packs.take_label()

    def replace_packs(self, inputs: Sequence[int], output: int | None) -> None:
        self.reclaim.replace_packs(inputs, output)

    def leave(self, queue: SplitQueue) -> None:
        self.reclaim.leave(queue)

    def demote(self, queues: Sequence[SplitQueue]) -> None:
        demote(queues, self._queues, self._packs, self.reclaim)
