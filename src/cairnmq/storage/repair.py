"""Making good what can be made good: index files from their log, damaged records from a journal that still has them.

Nothing is changed in place: a new file is written and synced, then it takes the old one's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint import CheckpointImage, checkpoint_name
from cairnmq.storage.damage import Damage, Place
from cairnmq.storage.disk import Disk, File, Unreadable
from cairnmq.storage.format import (
    OFFSET_INDEX_ENTRY,
    PACK_SUFFIX,
    PACKS,
    TIME_INDEX_ENTRY,
    numbered,
    pack_name,
)
from cairnmq.storage.queue_segment import (
    INDEX,
    LOG,
    TIME_INDEX,
    BatchPlace,
    find_offset,
    is_sound,
    place_at,
    segment_name,
    sound_walk,
    walk,
)
from cairnmq.storage.queue_state import QueueState

INDEX_INTERVAL_BYTES = 4096
ENTRIES_LOOKED_AT = 64
UNFINISHED = ".new"


class Kept(Struct, frozen=True, gc=False):
    """A batch that someone else still has."""

    data: memoryview
    last_offset: int
    max_timestamp: int


def restore_segment(
    disk: Disk, directory: str, base: int, end: int, state: QueueState, kept: Callable[[int], Kept | None]
) -> None:
    """A segment with all batches from offset `base` to `end`: those of the old file that are sound, and `kept` ones.

    Both are the same bytes in the same places, so behind a kept batch the old file may go on.
    """
    name = segment_name(directory, base, LOG)
    old = disk.open(name) if disk.exists(name) else None
    disk.remove(name + UNFINISHED)
    new = disk.create(name + UNFINISHED)
    position, expected = 0, base
    try:
        while expected < end:
            place = _sound_place(old, position) if old is not None else None
            if (
                old is not None
                and place is not None
                and place.base_offset == expected
                and place.last_offset < end
                and state.epoch_of(expected)[0] in (-1, place.leader_epoch)
            ):
                position += new.append([old.read(position, place.size)])
                expected = place.last_offset + 1
                continue
            batch = kept(expected)
            if batch is None or batch.last_offset >= end:
                raise Damage(
                    Place(name, position, directory.rpartition("/")[2], expected), "no journal holds them any more"
                )
            position += new.append([batch.data])
            expected = batch.last_offset + 1
        new.sync()
    except (OSError, Corrupt):
        disk.remove(name + UNFINISHED)
        raise
    finally:
        new.close()
        if old is not None:
            old.close()
    disk.rename(name + UNFINISHED, name)
    disk.sync_dir(directory)


def _sound_place(file: File, position: int) -> BatchPlace | None:
    try:
        place = place_at(file, position)
        return place if place is not None and is_sound(file, place) else None
    except Unreadable:
        return None


def indexes_lie(disk: Disk, directory: str, base: int, interval: int, *, closed: bool) -> bool:
    """Is anything wrong with the indexes of a segment, as far as a look at some of their entries tells?

    Those of one that is not closed may end early.
    """
    file = disk.open(segment_name(directory, base, LOG))
    try:
        return _offsets_lie(disk, directory, base, file, interval, closed) or _times_lie(
            disk, directory, base, file, closed
        )
    except Corrupt:
        return False  # the log is damaged, and its index may lead around that
    finally:
        file.close()


def _offsets_lie(disk: Disk, directory: str, base: int, file: File, interval: int, closed: bool) -> bool:
    entries = _entries(
        disk, segment_name(directory, base, INDEX), OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.iter_unpack
    )
    if entries is None:
        return closed and file.size() > 0
    if any(a >= b or p >= q for (a, p), (b, q) in pairwise(entries)):
        return True
    for relative, position in _some(entries):
        place = place_at(file, position)
        if place is None or place.last_offset != base + relative:
            return True
    unindexed = 0
    for place in walk(file, entries[-1][1] if entries else 0) if closed else ():
        if unindexed > interval:
            return True
        unindexed += place.size
    return False


def _times_lie(disk: Disk, directory: str, base: int, file: File, closed: bool) -> bool:
    entries = _entries(
        disk, segment_name(directory, base, TIME_INDEX), TIME_INDEX_ENTRY.size, TIME_INDEX_ENTRY.iter_unpack
    )
    if entries is None:
        return closed and file.size() > 0
    if any(a >= b or p >= q for (a, p), (b, q) in pairwise(entries)):
        return True
    place = None
    for timestamp, relative in _some(entries):
        place = find_offset(disk, directory, base, file, base + relative)
        if place is None or (place.last_offset, place.max_timestamp) != (base + relative, timestamp):
            return True
    newest = entries[-1][0] if entries else -1
    following = walk(file, place.position if place is not None else 0) if closed else ()
    return any(place.max_timestamp > newest and place.count for place in following)


def _entries(
    disk: Disk, name: str, size: int, unpack: Callable[[bytes], Iterable[tuple[int, int]]]
) -> list[tuple[int, int]] | None:
    """None: the file is not there, cannot be read, or does not end with a whole entry."""
    if not disk.exists(name):
        return None
    file = disk.open(name)
    try:
        data = file.read(0, file.size())
    except Unreadable:
        return None
    finally:
        file.close()
    if len(data) % size:
        return None
    # A crash can leave the first entry zeroed: "look from the segment's beginning", which is never wrong.
    return list(unpack(data if any(data[:size]) else data[size:]))


def _some(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Not too many, and the last one at the end."""
    return entries[len(entries) - 1 :: -max(1, len(entries) // ENTRIES_LOOKED_AT)][::-1] if entries else []


def rebuild_indexes(disk: Disk, directory: str, base: int, interval: int = INDEX_INTERVAL_BYTES) -> None:
    """Both indexes of a closed segment. A log with damage raises: its old index leads around the damage."""
    file = disk.open(segment_name(directory, base, LOG))
    try:
        first = find_offset(disk, directory, base, file, base)
        places = list(sound_walk(disk, directory, base, file, first, 1 << 62)) if first is not None else []
    finally:
        file.close()
    offsets, times = index_bytes(places, base, interval)
    disk.replace(segment_name(directory, base, INDEX), offsets)
    disk.replace(segment_name(directory, base, TIME_INDEX), times)


def index_bytes(places: Iterable[BatchPlace], base: int, interval: int) -> tuple[bytes, bytes]:
    """Offset and time index of a closed segment with these batches, by Kafka's rule: an entry for the first batch
    behind every `interval` bytes; the time index ends with the largest timestamp."""
    offsets, times = bytearray(), bytearray()
    unindexed, newest, newest_at, indexed = 0, -1, 0, -1
    for place in places:
        if place.max_timestamp > newest and place.count:
            newest, newest_at = place.max_timestamp, place.last_offset - base
        if unindexed > interval:
            offsets += OFFSET_INDEX_ENTRY.pack(place.last_offset - base, place.position)
            if newest > indexed:
                times += TIME_INDEX_ENTRY.pack(newest, newest_at)
                indexed = newest
            unindexed = 0
        unindexed += place.size
    if newest > indexed:
        times += TIME_INDEX_ENTRY.pack(newest, newest_at)
    return bytes(offsets), bytes(times)


def refuse_stale_checkpoint(disk: Disk, image: CheckpointImage, directories: Iterable[str]) -> None:
    """Raises if files say that there was a later checkpoint, which is damaged: it has replaced what this one names.

    A start removes packs that no checkpoint names, so it must not go by an old one. `directories`: of the queues that
    have segments by this checkpoint.
    """
    held = set(numbered(disk.list(PACKS), PACK_SUFFIX))
    unnamed = held.difference(image.packs)
    if not unnamed:
        return
    missing = [pack_name(number) for number in image.packs if number not in held]
    missing += [directory for directory in directories if not numbered(disk.list(directory), LOG)]
    if missing:
        raise Corrupt(
            f"{checkpoint_name(image.file_number)} names {missing[0]}, which is gone, and not "
            f"{pack_name(max(unnamed))}, which is there: its last part is damaged or an old copy was put in its place. "
            f"Restore it; nothing was changed."
        )
