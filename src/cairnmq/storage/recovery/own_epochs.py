"""Epochs in which this broker led a journal itself: only what it wrote then says what is on this disk (R5)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cairnmq.storage.files.disk import Disk
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNote


def led_here(disk: Disk, number: int, nodes: Collection[int], note: ReplicaNote) -> Callable[[int], bool]:
    """Whether claims of an epoch about a synced end are about this disk, as it is now: not if this replica was cut in
    it, or later. `nodes`: ids that this broker has had. Each epoch begins with a segment's head, which names its
    leader; one of version 1, when there were no followers, names none."""
    reader = JournalReader(disk, number)
    try:
        own = {
            entry.epoch
            for base in reader.bases
            if (head := reader.head(base)) is not None
            and (head.leader is None or head.leader.node_id in nodes)
            and (entry := next(reader.entries(base, reader.end(), 4096), None)) is not None
        }
    finally:
        reader.close()
    return lambda epoch: epoch > note.cut_in and epoch in own
