"""A new segment in the making, beside the files whose place it will take: what makes it count is a swap."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.storage.batches.batch_run import walk
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import Aborted, txn_index_bytes
from cairnmq.storage.segments.index_rebuild import index_bytes
from cairnmq.storage.segments.segment import CLEANED, INDEX, LOG, SUFFIXES, TIME_INDEX, TXN_INDEX, segment_name
from cairnmq.types import Buffers

SYNC_BYTES = 64 << 20


class CleanedSegment:
    """`append`, then `finish` or `drop`. `base`: its first offset."""

    def __init__(self, disk: Disk, directory: str, base: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base = base
        self.size = 0
        self._unsynced = 0
        self._remove()
        self._file = disk.create(self._name(LOG))

    def append(self, batches: Buffers) -> None:
        if not batches:
            return
        written = self._file.append(batches)
        self.size += written
        self._unsynced += written
        if self._unsynced >= SYNC_BYTES:
            self._file.sync()  # in portions: one sync of it all would hold up the disk
            self._unsynced = 0

    def finish(self, index_interval_bytes: int, aborted: Iterable[Aborted] | None) -> None:
        """The file and its indexes are whole and synced. `aborted`: None for no index of them."""
        self._file.sync()
        indexes = index_bytes(walk(self._file, 0), self.base, index_interval_bytes)
        files = dict(zip((INDEX, TIME_INDEX), indexes, strict=True))
        if aborted is not None:
            files[TXN_INDEX] = txn_index_bytes(aborted)
        for suffix, data in files.items():
            index = self.disk.create(self._name(suffix))
            index.append([data])
            index.sync()
            index.close()
        self._file.close()

    def drop(self) -> None:
        self._file.close()
        self._remove()

    def _name(self, suffix: str) -> str:
        return segment_name(self.directory, self.base, suffix) + CLEANED

    def _remove(self) -> None:
        for suffix in SUFFIXES:
            self.disk.remove(self._name(suffix))
