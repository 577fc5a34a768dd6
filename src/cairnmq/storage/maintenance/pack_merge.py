"""Merging packs: which ones (a pure decision), and the work in small steps between the splitter's rounds.

Neighbours of about the same size are merged, so that each byte is written again only a few times while the number of
packs stays small. Records nobody can ask for any more (deleted queues, below the log start) are left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from cairnmq.storage.compaction.pack_compaction import ExtentCleaning
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import PackLabel
from cairnmq.storage.packs.pack import PackReader, PackWriter
from cairnmq.storage.packs.pack_set import merged

FANOUT = 8
SMALLEST_TIER_BYTES = 1 << 20
MERGED_BYTES_MAX = 1 << 30
DEAD_SHARE = 0.5
SYNC_BYTES = 64 << 20


class PackSize(Struct, frozen=True, gc=False):
    """A pack as the plan sees it. `dead`: bytes of records that nobody can ask for any more."""

    number: int
    size: int
    dead: int


def plan(packs: Sequence[PackSize], fanout: int = FANOUT, bytes_max: int = MERGED_BYTES_MAX) -> list[int]:
    """Neighbours to merge into one next, or one pack to write again; empty when all is well. `packs` in order."""
    tiers = [_tier(pack.size, fanout) for pack in packs]
    for tier in range(max(tiers, default=-1) + 1):
        first, size, count = 0, 0, 0
        for index, pack in enumerate(packs):
            if tiers[index] > tier or size + pack.size > bytes_max:
                first, size, count = index + (tiers[index] > tier), 0, 0
            if tiers[index] <= tier:
                size += pack.size
                count += tiers[index] == tier  # smaller ones in between come along
            if count == fanout:
                return [pack.number for pack in packs[first : index + 1]]
    for pack in packs:
        if pack.dead > DEAD_SHARE * pack.size:
            return [pack.number]
    return []


def _tier(size: int, fanout: int) -> int:
    tier, bound = 0, SMALLEST_TIER_BYTES
    while size > bound:
        tier, bound = tier + 1, bound * fanout
    return tier


LogStart = Callable[[int], int | None]  # of a queue, as checkpointed; None: the queue is deleted
Cleaning = Callable[[int], ExtentCleaning | None]  # how a queue's extents are compacted; None: they are copied


class MergeJob:
    """One merge. `step` until it says that it is done; the result counts when a checkpoint names it."""

    def __init__(
        self,
        disk: Disk,
        packs: list[PackReader],
        label: PackLabel,
        log_start: LogStart,
        cleaning: Cleaning = lambda queue_id: None,
    ) -> None:
        self.inputs = [pack.number for pack in packs]
        self.output: int | None = None  # none is needed when nothing in the inputs is alive
        self.read_bytes = 0
        self._disk = disk
        self._label = label
        self._writer: PackWriter | None = None
        self._unsynced = 0
        self.cleaning: ExtentCleaning | None = None  # the one at work
        self.cleaned: list[ExtentCleaning] = []
        self._work = self._run(packs, log_start, cleaning)

    def _run(self, packs: list[PackReader], log_start: LogStart, cleaning: Cleaning) -> Iterator[int]:
        """Yields bytes read."""
        for queue_id, extents in merged(packs):
            start = log_start(queue_id)
            alive = [place for place in extents if start is not None and place[1].end_offset > start]
            if not alive:
                continue
            if self._writer is None:
                self._writer = PackWriter(self._disk, self._label)
            how = cleaning(queue_id)
            if how is not None and how.can(alive):
                self.cleaning = how
                yield from how.run(alive, partial(self._writer.add_batches, queue_id))
                self.cleaning = None
                self.cleaned.append(how)
                continue
            for pack, extent in alive:
                self._writer.add_extent(extent, pack.data(extent))
                yield extent.size

    def step(self, max_bytes: int) -> bool:
        """Copies about `max_bytes`; True when the merged pack is whole and synced."""
        copied = 0
        for size in self._work:
            copied += size
            if copied >= max_bytes:
                break
        self.read_bytes += copied
        self._unsynced += copied
        if copied >= max_bytes:
            if self._unsynced >= SYNC_BYTES and self._writer is not None:
                self._writer.file.sync()  # in portions: one sync of it all would hold up the disk
                self._unsynced = 0
            return False
        if self._writer is not None:
            self._writer.finish()
            self._writer.file.sync()
            self.output = self._label.number
        return True

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
