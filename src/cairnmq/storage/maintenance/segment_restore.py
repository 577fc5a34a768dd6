"""A damaged segment written again, with the batches that a journal still has.

Nothing is changed in place: a new file is written and synced, then it takes the old one's name.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import BatchPlace
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import UNFINISHED
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.segment import LOG, SegmentRun, segment_name


class Kept(Struct, frozen=True, gc=False):
    """A batch that someone else still has."""

    data: memoryview
    last_offset: int
    max_timestamp: int


def restore_segment(
    disk: Disk,
    directory: str,
    base: int,
    end: int,
    state: QueueState,
    kept: Callable[[int], Kept | None],
    ready: Callable[[File], None] = lambda _: None,
) -> None:
    """A segment with all batches from offset `base` to `end`: those of the old file that are sound, and `kept` ones.

    Both are the same bytes in the same places, so behind a kept batch the old file may go on. `ready` is called with
    the new file before that takes the name of the old one.
    """
    name = segment_name(directory, base, LOG)
    old = disk.open(name) if disk.exists(name) else None
    run = SegmentRun(disk, directory, base, old) if old is not None else None
    disk.remove(name + UNFINISHED)
    new = disk.create(name + UNFINISHED)
    position, expected = 0, base
    try:
        while expected < end:
            place = _sound_place(run, position) if run is not None else None
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
        ready(new)
    except (OSError, Corrupt):
        disk.remove(name + UNFINISHED)
        raise
    finally:
        new.close()
        if old is not None:
            old.close()
    disk.rename(name + UNFINISHED, name)
    disk.sync_dir(directory)


def _sound_place(run: SegmentRun, position: int) -> BatchPlace | None:
    try:
        place = run.place_at(position)
        return place if place is not None and run.is_whole(place) else None
    except Unreadable:
        return None
