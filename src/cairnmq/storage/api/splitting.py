"""What the splitter process uses: rounds and checkpoints, maintenance, repair."""

from __future__ import annotations

from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import Resume
from cairnmq.storage.compaction.queue_job import CannotCompact
from cairnmq.storage.files.disk import Disk, RealDisk, Unreadable
from cairnmq.storage.files.fault_point import arm
from cairnmq.storage.files.reserve import FULL, Reserve
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.open_logs import OPEN_FILES_MAX
from cairnmq.storage.splitter.progress import Unreported
from cairnmq.storage.splitter.splitter import Splitter

__all__ = [
    "FULL",
    "Maintenance",
    "OPEN_FILES_MAX",
    "QueueSpec",
    "RealDisk",
    "Repairer",
    "Reserve",
    "Resume",
    "Splitter",
    "CannotCompact",
    "Disk",
    "Unreadable",
    "Unreported",
    "arm",
    "load_checkpoint",
]
