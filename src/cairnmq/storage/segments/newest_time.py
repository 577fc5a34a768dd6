"""The largest timestamp of a segment: claimed by its time index, proven by its batches, a piece at a time.

No index is believed where it could delete records. So whoever may delete by it walks over all batches behind the last
entry of the time index, which are most of the segment where times do not ascend. None of that is done twice: a segment
only grows, and what was looked at is remembered for as long as its file stays the same.
"""

from __future__ import annotations

from msgspec import Struct

from cairnmq.storage.files.damage import Damage
from cairnmq.storage.segments.segment import OnLie, SegmentRun, time_hint, time_start

ALL = 1 << 62


class NewestTime(Struct, frozen=True, gc=False):
    """What is known after a look at all batches below `offset`, which lies at `position` of a file of `size` bytes.

    `base` and `last`: offsets of the first batch with that time. -1: there is none.
    """

    size: int
    position: int
    offset: int
    time: int = -1
    base: int = -1
    last: int = -1


def claimed(run: SegmentRun, limit: int, on_lie: OnLie | None = None) -> NewestTime:
    """As the time index has it for batches below offset `limit`, if the batch it names says so too: at least so new the
    segment is. Nothing that lies before that batch is newer, if the index ever was right."""
    place, time = time_start(run, ALL, limit, on_lie)
    if place is None:
        return NewestTime(run.end, run.end, limit)
    if time < 0:
        return NewestTime(run.end, place.position, place.base_offset)
    return NewestTime(run.end, place.position, place.base_offset, time, place.base_offset, place.last_offset)


def newest_since(run: SegmentRun, offset: int) -> NewestTime:
    """Nothing yet, of the batches from the one that holds `offset` on."""
    place = run.find(offset)
    if place is None:
        return NewestTime(run.end, run.end, offset)
    return NewestTime(run.end, place.position, place.base_offset)


def proven(
    run: SegmentRun, known: NewestTime, limit: int, most: int = ALL, *, empty: bool = False, around: bool = False
) -> NewestTime:
    """After a look at more batches below offset `limit`, at about `most` bytes of them.

    `empty`: batches without records count too. `around`: damage is stepped over, and then whatever else claims a time
    counts too, because who deletes must rather keep too long; else it is raised.
    """
    position, offset, time, base, last = known.position, known.offset, known.time, known.base, known.last
    stop = position + most
    while offset < limit and position < stop:
        try:
            for place in run.sound_walk(position, offset, limit):
                position, offset = place.position + place.size, place.last_offset + 1
                if place.max_timestamp > time and (place.count or empty):
                    time, base, last = place.max_timestamp, place.base_offset, place.last_offset
                if position >= stop:
                    break
            else:
                offset = limit  # or the file ends before it
        except Damage as damage:
            if not around:
                raise
            found = damage.place
            bad, going_on = run.place_at(found.position), run.behind_damage(found.position, found.first)
            time = max(time, bad.max_timestamp if bad is not None else -1)
            time = max(time, time_hint(run.disk, run.directory, run.base, 0)[2])
            position, offset = (run.end, limit) if going_on is None else (going_on.position, going_on.base_offset)
    return NewestTime(run.end, position, offset, time, base, last)
