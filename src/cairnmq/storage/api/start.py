"""What a broker uses when it starts: locks, owner and witness, recovery, lost disks."""

from __future__ import annotations

from cairnmq.storage.engine import Engine, EngineConfig, Joining
from cairnmq.storage.files.disk import DirectoryLock, RealDisk, lock_all
from cairnmq.storage.files.fault_point import arm, reach
from cairnmq.storage.files.format import UNFINISHED, Keyed, Leader
from cairnmq.storage.files.set_aside import put_aside
from cairnmq.storage.journal.directories import find_foreign, find_journals
from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.lost_disk import Loss, accept, accepted, find_loss, find_metadata_loss
from cairnmq.storage.recovery.owner import OwnerWitness, check_owner, is_replica, read_owner
from cairnmq.storage.recovery.replay import Progress, Scan
from cairnmq.storage.recovery.witness import Known, begin, witness_fact

__all__ = [
    "DirectoryLock",
    "Engine",
    "EngineConfig",
    "Keyed",
    "Joining",
    "Known",
    "Leader",
    "Loss",
    "OwnerWitness",
    "Progress",
    "QueueSpec",
    "ReplicaNote",
    "RealDisk",
    "Scan",
    "UNFINISHED",
    "accept",
    "accepted",
    "arm",
    "begin",
    "check_owner",
    "find_loss",
    "find_metadata_loss",
    "find_foreign",
    "find_journals",
    "is_replica",
    "lock_all",
    "put_aside",
    "reach",
    "read_owner",
    "witness_fact",
]
