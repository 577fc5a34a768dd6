"""The work of splitters as the read disk has it: what a broker takes over before a successor starts.

The truth is the checkpoint on disk. The broker may not have heard of it, because the splitter died or failed between
publish and report; and after a failed sync, what was split since may be lost. Table of cases: ADR 0015.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cairnmq.codec.batch import TRANSACTIONAL_BIT
from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, checkpoint_name, load_checkpoint
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace, Resume
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import BATCH, ENTRY_SIZE
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.queue.state import QueueState


class SplitBatch(Struct, frozen=True, gc=False):
    """A batch that is in a queue log and still in the journal."""

    journal: int
    queue_id: int
    offset: int
    position: int
    size: int
    timestamp: int


class StoredSplit(Struct, frozen=True):
    """What the read disk says, and the journals of the rest."""

    published: Published  # the checkpoint, with the places of queues that lie elsewhere than the broker believes
    found: list[SplitBatch]  # split since, by what splitters have reported
    states: dict[int, QueueState]  # what the transactions among those came to


def scan_split(
    read_disk: Disk,
    journals: Iterable[Journal],
    split: Mapping[int, int],
    queues: Mapping[int, Queue],
    known: Resume,
    *,
    is_suspect: bool,
) -> StoredSplit | None:
    """`split`, `queues`, `known`: what the broker believes; it is in memory and may be read while no splitter runs.

    None: it goes by the checkpoint that is on disk, and what was split since counts, because it is not suspect.
    """
    image = load_checkpoint(read_disk)
    if image.serial < known.serial:
        raise Corrupt(
            f"{checkpoint_name(image.file_number)} (number {image.serial}) is older than the one this broker "
            f"works with (number {known.serial}). Restore it, or restart the broker to check what is missing."
        )
    if image.serial == known.serial and not is_suspect:
        return None
    found: list[SplitBatch] = []
    states: dict[int, QueueState] = {}
    positions: dict[int, int] = {}
    for journal in journals:
        mark = image.marks.get(journal.number)
        positions[journal.number] = mark.split if mark is not None else 0
        _scan(journal, positions[journal.number], split[journal.number], image, found, states)
    touched = {*known.segments_from, *(batch.queue_id for batch in found)}
    moved = [place for queue in tuple(queues.values()) if (place := new_place(queue, image, touched)) is not None]
    return StoredSplit(Published(image.serial, positions, image.packs, moved), found, states)


def _scan(
    journal: Journal,
    position: int,
    end: int,
    image: CheckpointImage,
    found: list[SplitBatch],
    states: dict[int, QueueState],
) -> None:
    """Adds the batches from `position` to `end`, all of which were split once."""
    reader = JournalReader(journal.disk, journal.number)
    for entry in reader.entries(position, end):
        position = entry.end
        if entry.kind != BATCH:
            continue
        at, size = entry.position + ENTRY_SIZE, len(entry.payload)
        batch = SplitBatch(journal.number, entry.queue_id, entry.base_offset, at, size, entry.max_timestamp)
        found.append(batch)
        if entry.attributes & TRANSACTIONAL_BIT:
            state = states.get(entry.queue_id)
            if state is None:
                row = image.queues.get(entry.queue_id)
                state = states[entry.queue_id] = QueueState.from_row(row) if row is not None else QueueState()
            state.fold(entry, 0)
    reader.close()
    if position < end:
        raise Corrupt(f"journal {journal.number} is damaged at position {position}; it was split up to {end}")


def new_place(queue: Queue, image: CheckpointImage, touched: set[int]) -> QueuePlace | None:
    """Where a queue's records are by a checkpoint, if the broker may believe something else.

    `touched`: queues that were split since.
    """
    row = image.queues.get(queue.queue_id)
    place = QueuePlace.of(row) if row is not None else QueuePlace(queue.queue_id)
    same = place.segments_from == queue.segments_from and dict(place.row_sums) == (queue.row_sums or {})
    is_swapping = row is not None and bool(row.compaction.swaps)  # files have taken the place of those it has open
    return None if same and queue.queue_id not in touched and not is_swapping else place
