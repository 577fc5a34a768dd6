"""What a broker uses to give a journal with all records of its queues to another replica, and to take it over."""

from __future__ import annotations

from cairnmq.storage.files.format import JournalMark
from cairnmq.storage.install.install_files import remove_install
from cairnmq.storage.install.snapshot import Snapshot, newest_checkpoint, take_snapshot
from cairnmq.storage.install.snapshot_reads import Run, aborted_bytes, read_aborted, read_run
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.storage.live.hosting import Hosting

__all__ = [
    "Hosting",
    "JournalMark",
    "Run",
    "Snapshot",
    "StagedInstall",
    "aborted_bytes",
    "newest_checkpoint",
    "read_aborted",
    "read_run",
    "remove_install",
    "take_snapshot",
]
