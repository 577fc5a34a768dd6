"""What a broker uses while it serves: queues, appends, reads, and what is wrong with a read or a batch."""

from __future__ import annotations

from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.batches.compaction_admission import AT_ONCE_BYTES, refuse_keyless
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.batches.record_errors import NAMED_MAX, RefusedRecords, read_body, wrong_times
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.buffers import LARGE, SMALL, Chunks, ResponseArena
from cairnmq.storage.files.damage import Place, ReadFailure, failure_of, frameless
from cairnmq.storage.files.format import LOSSES, UNSYNCED, Aborted, Keyed
from cairnmq.storage.files.reserve import FULL
from cairnmq.storage.journal.file_ranges import FileRange
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.live.ack_policy import AckPoint
from cairnmq.storage.live.follow_path import Copy, FollowPath, JournalRole, MustReopen
from cairnmq.storage.live.hosting import SEGMENTS_LEFT
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches, Reads
from cairnmq.storage.live.time_lookup import find_record, newest_in_tail
from cairnmq.storage.live.unreplicated import Write
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.segment import forget_oldest

__all__ = [
    "AT_ONCE_BYTES",
    "Aborted",
    "AckPoint",
    "Batches",
    "Chunks",
    "Copy",
    "UNSYNCED",
    "Engine",
    "FULL",
    "FileRange",
    "FollowPath",
    "Journal",
    "JournalRole",
    "Keyed",
    "LARGE",
    "LOSSES",
    "Marker",
    "MustReopen",
    "NAMED_MAX",
    "NotCached",
    "Place",
    "Placed",
    "Queue",
    "QueueSpec",
    "QueueState",
    "ReadFailure",
    "Reads",
    "RefusedRecords",
    "ReplicaNote",
    "SEGMENTS_LEFT",
    "SMALL",
    "Span",
    "ResponseArena",
    "Write",
    "WritePath",
    "failure_of",
    "find_record",
    "forget_oldest",
    "frameless",
    "newest_in_tail",
    "read_body",
    "refuse_keyless",
    "wrong_times",
]
