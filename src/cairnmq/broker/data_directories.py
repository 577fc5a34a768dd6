"""Where a broker keeps its data: the directory of the journals and that of the rest, and the locks on both."""

from __future__ import annotations

import os

from msgspec import Struct

from cairnmq.broker.options import ServeOptions
from cairnmq.broker.start_errors import CannotServe, cannot_use
from cairnmq.storage.api.start import DirectoryLock, Loss, RealDisk, accept, lock_all

_LOCK_WAIT_SECONDS = 2.0


class DataDirectories(Struct, frozen=True):
    """By path: a disk holds a descriptor for as long as it is used, so each step of a start has its own."""

    journal: str
    data: str

    @classmethod
    def of(cls, options: ServeOptions) -> DataDirectories:
        return cls(options.journal_dir or os.path.join(options.data, "journal"), options.data)

    def journal_disk(self) -> RealDisk:
        return RealDisk(self.journal)

    def data_disk(self) -> RealDisk:
        return RealDisk(self.data)

    def accept(self, loss: Loss, *, epoch: int, node_id: int, seed: int, now_ms: int) -> None:
        """What is left on the disks becomes whole without what is lost."""
        accept(self.journal_disk(), self.data_disk(), loss, epoch=epoch, node_id=node_id, seed=seed, now_ms=now_ms)


def lock_directories(options: ServeOptions) -> list[DirectoryLock]:
    """Makes the directories where they are missing."""
    directories = (("--data", options.data), ("--journal-dir", DataDirectories.of(options).journal))
    try:
        return lock_all([path for _, path in directories], _LOCK_WAIT_SECONDS)
    except OSError as error:
        flag, path = directories[0 if options.journal_dir is None or not os.path.isdir(options.data) else 1]
        raise CannotServe(cannot_use(flag, path, error)) from error
