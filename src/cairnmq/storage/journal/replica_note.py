"""`replica.json` beside a journal's segments: what this replica knows of the other ones, and in which epoch it was cut.

A start folds no more of the journal than the note and the metadata say together. It is made durable before the journal
is cut: what this broker wrote as the leader of an epoch up to that of the cut, and copied again later, was synced once,
and may not be now (ADR 0027).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.disk import Disk, Unreadable

REPLICA_FILE = "replica.json"
EPOCHS_END = 1 << 31


class ReplicaNote(Struct, frozen=True):
    """Ends of the journal, each as far as this disk has it; the epoch in which they were learned, and the last epoch in
    which this replica was cut."""

    replicated: int = 0
    durable: int = 0
    epoch: int = 0
    cut_in: int = 0

    def kept_below(self, position: int) -> ReplicaNote:
        """What it says of what lies before `position`."""
        return ReplicaNote(min(self.replicated, position), min(self.durable, position), self.epoch, self.cut_in)


UNREADABLE = ReplicaNote(cut_in=EPOCHS_END)  # nothing is known, and no claim of an earlier leadership counts


def replica_name(number: int) -> str:
    return f"{number}/{REPLICA_FILE}"


def read_replica_note(disk: Disk, number: int) -> ReplicaNote:
    """Of a journal that has none yet: that nothing is known."""
    name = replica_name(number)
    if not disk.exists(name):
        return ReplicaNote()
    file = disk.open(name)
    try:
        data = bytes(file.read(0, file.size()))
        return msgspec.json.decode(data, type=ReplicaNote) if sealed_json.holds(data) else UNREADABLE
    except (Unreadable, msgspec.MsgspecError, UnicodeDecodeError):
        return UNREADABLE
    finally:
        file.close()


class ReplicaNoteFile:
    """The writing side of one journal's; blocks, one call at a time. `kept`: what is on the disk."""

    def __init__(self, disk: Disk, number: int) -> None:
        self._disk = disk
        self._number = number
        self.kept = read_replica_note(disk, number)

    def put(self, note: ReplicaNote, synced: int) -> None:
        """Durable on return. Only what the own disk has up to `synced` is noted: a power loss must not leave a note of
        more. An older note that is late says nothing about what came after a cut."""
        kept = self.kept
        if note.epoch < kept.cut_in:
            synced = min(synced, kept.replicated)
        note = note.kept_below(synced)
        self._store(ReplicaNote(note.replicated, note.durable, note.epoch, max(note.cut_in, kept.cut_in)))

    def cut(self, position: int, in_epoch: int) -> None:
        """Durable on return: then the journal may be cut."""
        kept = self.kept.kept_below(position)
        self._store(ReplicaNote(kept.replicated, kept.durable, kept.epoch, max(kept.cut_in, in_epoch)))

    def _store(self, note: ReplicaNote) -> None:
        if note != self.kept:
            self._disk.replace(replica_name(self._number), sealed_json.seal(note))
            self.kept = note
