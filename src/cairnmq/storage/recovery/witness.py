"""The witness: storage's copy of the numbers that the metadata hand out and that never fall, compared at every start.

Metadata that were put back to an older state would hand out producer ids, queue ids and epochs for the second time, and
a new producer's records would be taken for duplicates of an old one's. So these numbers are kept where the records are:
in `owner.json` and as a keyed fact in journal 0, which the checkpoint carries on. Each copy may lag; it is then weaker,
never wrong. What rows and entries show to be in use counts too. ADR 0013.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt, Outdated
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import FACT, Entry, Keyed, decode_fact
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.recovery.owner import read_owner
from cairnmq.types import OWN_PRODUCERS_FROM, Counters, highest

SPACE = "witness"
KEY = b"metadata"
# Clients may write any producer id into their batches; above the largest possible ones there would be none to give.
PRODUCERS_END = 1 << 62
NOTHING = Counters()


def witness_fact(counters: Counters) -> tuple[str, bytes, bytes]:
    return SPACE, KEY, msgspec.json.encode(counters)


class Known(Struct, frozen=True):
    """What storage knows of the metadata's numbers, before anything is written."""

    stored: Counters = NOTHING  # by the witness
    seen: Counters = NOTHING  # in rows, entries and packs

    @property
    def floor(self) -> Counters:
        """Nothing below may be given out again."""
        return highest(self.stored, self.seen)


class Seen(Struct):
    """The highest numbers on the way through checkpoint and journals."""

    epoch: int = 0
    queue_id: int = 0
    producer_id: int = -1
    stored: Counters = NOTHING

    def add(self, epoch: int, queue_id: int, producer_id: int) -> None:
        self.epoch = max(epoch, self.epoch)
        self.queue_id = max(queue_id, self.queue_id)
        if self.producer_id < producer_id < PRODUCERS_END:
            self.producer_id = producer_id

    def add_entry(self, entry: Entry) -> None:
        self.add(entry.epoch, entry.queue_id, entry.producer_id)
        if entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed) and (fact.space, fact.key) == (SPACE, KEY):
                self.add_fact(fact.value)

    def join(self, other: Seen) -> None:
        self.add(other.epoch, other.queue_id, other.producer_id)
        self.stored = highest(self.stored, other.stored)

    def add_fact(self, value: bytes | None) -> None:
        """The witness as it was stored in a journal or a checkpoint."""
        if value is not None:
            self.stored = highest(self.stored, msgspec.json.decode(value, type=Counters))

    def add_image(self, image: CheckpointImage) -> None:
        epoch = max((mark.epoch for mark in image.marks.values()), default=0)
        self.add(epoch, max(image.queues, default=0), -1)
        largest = self.producer_id
        for row in image.queues.values():
            for producer in row.producers:
                if largest < producer.producer_id < PRODUCERS_END:
                    largest = producer.producer_id
        self.producer_id = largest
        stored = image.keyed.get((SPACE, KEY))
        self.add_fact(stored.value if stored is not None else None)

    def _add_packs(self, disk: Disk, numbers: Iterable[int]) -> None:
        """Queues of deleted topics may still have records there. One that cannot be read is told of by others."""
        for number in numbers:
            try:
                pack = PackReader.open(disk, number)
                self.add(0, max((extent.queue_id for extent in pack), default=0), -1)
                pack.close()
            except (Corrupt, OSError):
                continue

    def known(self, journal_disk: Disk | None, read_disk: Disk, packs: Iterable[int]) -> Known:
        """With what `owner.json` says; with what the packs say, if there was no witness yet when they were written."""
        owner = read_owner(journal_disk) if journal_disk is not None else None
        stored = highest(self.stored, owner.witness) if owner is not None else self.stored
        if stored == NOTHING:
            self._add_packs(read_disk, packs)
        next_producer_id = self.producer_id + 1 if self.producer_id >= OWN_PRODUCERS_FROM else 0
        return Known(stored, Counters(self.epoch, self.queue_id + 1, next_producer_id))


def older(metadata: Counters, known: Known) -> str | None:
    """What shows that the metadata is older than the records; None if nothing does.

    Producer ids that were only seen prove nothing: clients may make them up.
    """
    signs = []
    missing = known.stored.revision - metadata.revision
    if missing > 0:
        signs.append(
            f"{missing} change{' is' if missing == 1 else 's are'} missing, the last one is number "
            f"{metadata.revision} of {known.stored.revision}"
        )
    floor = known.floor
    if metadata.epoch < floor.epoch:
        signs.append(f"it has epochs up to {metadata.epoch}, and epoch {floor.epoch} was in use")
    if metadata.next_queue_id < floor.next_queue_id:
        taken = floor.next_queue_id - 1
        signs.append(f"its next queue id is {metadata.next_queue_id}, and ids up to {taken} are taken")
    if metadata.next_producer_id < known.stored.next_producer_id:
        taken = known.stored.next_producer_id - 1
        signs.append(
            f"its next producer id is {max(metadata.next_producer_id, OWN_PRODUCERS_FROM)}, and ids up "
            f"to {taken} are taken"
        )
    return "; ".join(signs) if signs else None


class Metadata(Protocol):
    """The store's side of a start."""

    def counters(self) -> Counters: ...

    def raise_to(self, floor: Counters) -> None: ...

    def next_epoch(self, above: int = 0) -> int: ...


def begin(metadata: Metadata, known: Known, keep: Callable[[Counters], None], *, shared: str = "") -> int:
    """Compares, then commits, then lets `keep` write the witness; returns the new epoch. `shared`: the metadata that
    brokers of a cluster share, by their name.

    In this order: a start that is refused has changed nothing, so that the next one is refused too, and no entry is
    written under an epoch that the witness does not know.
    """
    text = older(metadata.counters(), known)
    if text is not None and shared:
        raise Outdated(
            f"the metadata in {shared} are older than the records of this broker: {text}. They are an old copy, or "
            f"their last changes are damaged. Stop all brokers and restore the newest copy; nothing was changed."
        )
    if text is not None:
        raise Outdated(
            f"the metadata is older than the records: {text}. It is an old copy, or its last changes "
            f"are damaged. Restore the newest meta.db, with its meta.db-wal if there is one. Nothing was "
            f"changed; `cairn serve --accept-loss` starts with the topics and settings that it has."
        )
    floor = known.floor
    metadata.raise_to(floor)
    epoch = metadata.next_epoch(floor.epoch)
    begun = metadata.counters()
    assert epoch > floor.epoch and begun.next_queue_id >= floor.next_queue_id  # invariant 8
    assert begun.next_producer_id >= floor.next_producer_id
    keep(begun)
    return epoch
