"""Syncs of the read disk for a checkpoint. After one that failed nothing is split or checkpointed any more."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.failed_sync import noting_unsynced, unsynced_name


class FailedSync(Struct, frozen=True):
    """What was split since the last checkpoint may be gone although it reads well, and a later sync would not say so.
    `error`: None if it was a predecessor's, of which only the note on the disk is left."""

    error: str | None = None

    def __str__(self) -> str:
        what = "sync of the read disk failed: data since the last checkpoint is split again"
        return what if self.error is None else f"{what} ({self.error})"


class CheckpointSync:
    """`failed` stays until the broker has gone back to the checkpoint, removed the note and started a successor."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.failed = FailedSync() if disk.exists(unsynced_name("")) else None

    def refuse_if_failed(self) -> None:
        if self.failed is not None:
            raise Fault(str(self.failed))

    def sync(self, files: Sequence[File], directories: Sequence[str]) -> None:
        try:
            with noting_unsynced(self.disk, ""):
                self.disk.sync_files(files, directories)
        except OSError as error:
            self.failed = FailedSync(text_of(error))
            raise
