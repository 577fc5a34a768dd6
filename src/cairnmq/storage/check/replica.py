"""One of several data directories that are held against each other: what its files say it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from cairnmq.errors import Corrupt, TooNew
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, load_checkpoint
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import FACT, QUEUES, SEGMENT, JournalMark
from cairnmq.storage.journal.directories import find_journals
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import read_replica_note, replica_name
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.recovery.owner import read_owner
from cairnmq.storage.segments.queue_log import read_identity

T = TypeVar("T", bound=Hashable)


class Replica(Struct):
    """`open` reads what all comparisons need; `close` when they are done."""

    root: str
    journal_root: str
    read_disk: Disk
    journal_disk: Disk
    image: CheckpointImage = field(default_factory=CheckpointImage)
    cluster_id: str = ""
    journals: dict[int, JournalReader] = field(default_factory=dict)
    packs: list[PackReader] = field(default_factory=list)
    directories: dict[int, str] = field(default_factory=dict)  # of queues with segments of their own
    homes: dict[int, int] = field(default_factory=dict)  # queue, or slot -> journal, as far as entries say it

    def open(self) -> bool:
        """False: it is damaged so that nothing of it can be compared; the checks of it alone have said why."""
        try:
            owner = read_owner(self.journal_disk)
            self.cluster_id = owner.cluster_id if owner is not None else ""
            self.image = load_checkpoint(self.read_disk)
            self.packs = [PackReader.open(self.read_disk, number) for number in self.image.packs]
            for number in find_journals(self.journal_disk, self.image.marks):
                reader = self.journals[number] = JournalReader(self.journal_disk, number)
                mark = self.image.marks.get(number)
                reader.seed = mark.seed if mark is not None and mark.seed else None
                self._find_homes(reader)
        except (Corrupt, TooNew, OSError, msgspec.MsgspecError):
            return False
        for name in self.read_disk.list(QUEUES):
            identity = read_identity(self.read_disk, f"{QUEUES}/{name}")
            if identity is not None and identity.directory == f"{QUEUES}/{name}":
                self.directories[identity.queue_id] = identity.directory
        return True

    def _find_homes(self, reader: JournalReader) -> None:
        for index, base in enumerate(reader.bases):
            for entry in reader.entries(base, reader.segment_end(index)):
                if entry.kind != SEGMENT and (entry.queue_id or entry.kind != FACT):
                    self.homes[entry.queue_id] = reader.number

    def replicated_end(self, journal: int) -> int:
        return replicated_end(self.journal_disk, journal, self.image.marks.get(journal))

    def split(self, journal: int) -> int | None:
        mark = self.image.marks.get(journal)
        return mark.split if mark is not None else None

    def close(self) -> None:
        for reader in self.journals.values():
            reader.close()
        for pack in self.packs:
            pack.close()


def replicated_end(journal_disk: Disk, journal: int, mark: JournalMark | None) -> int:
    """Up to here this replica knows that all have the same. The checkpoint's own mark may be from before a cut, but
    what was split is never cut."""
    if not journal_disk.exists(replica_name(journal)):
        return mark.replicated_end if mark is not None else 0
    return max(read_replica_note(journal_disk, journal).replicated, mark.split if mark is not None else 0)


def odd_ones(said: Sequence[T]) -> tuple[list[int], list[int]]:
    """Which of several say what most do, or what the first does; and which say something else."""
    if not said:
        return [], []
    most = Counter(said).most_common(1)[0][0]
    return [at for at, one in enumerate(said) if one == most], [at for at, one in enumerate(said) if one != most]


def names(replicas: Sequence[Replica], which: Sequence[int]) -> str:
    """`A`, or `A and B`."""
    *others, last = [replicas[at].root for at in which]
    return f"{', '.join(others)} and {last}" if others else last


def each_journal(replicas: Sequence[Replica]) -> Iterator[tuple[int, list[Replica]]]:
    """Those that at least two of them have."""
    for number in sorted({number for replica in replicas for number in replica.journals}):
        having = [replica for replica in replicas if number in replica.journals]
        if len(having) > 1:
            yield number, having
