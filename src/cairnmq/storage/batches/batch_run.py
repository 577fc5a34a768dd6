"""Batches one behind the other in a file, a segment or an extent of a pack: read, found, walked over, checked.

What a header says of its batch's size is never believed further than the file goes, and no more than a piece is in
memory of a batch that nobody has checked. A damaged batch costs the records up to the next one that its neighbour or
an index leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial

from msgspec import Struct

from cairnmq.codec import batch
from cairnmq.codec.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, stored_crc
from cairnmq.codec.crc32c import crc32c
from cairnmq.kernels import pick
from cairnmq.storage.files.buffers import ResponseArena
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import File
from cairnmq.types import Buffer

sound_batches = pick(batch.sound_batches)

FIRST_WINDOW_BYTES, WINDOW_BYTES = 4 << 10, 64 << 10  # most walks are over after a few batches
PIECE_BYTES = 1 << 20  # of a batch that is being checked, at a time
UNCHECKED_BYTES_MAX = 2 << 20  # one that says it is larger is read when a look at all of it has shown that it is


class BatchPlace(Struct, frozen=True, gc=False):
    """A batch in a segment file, by its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    count: int = 1


class Wanted(Struct, frozen=True, gc=False):
    """What a read of split records asks for: `max_bytes` of the batches from the one holding `offset` on.

    They end before the offset `limit`, and up to there all have the leader epoch `epoch` (any, if negative).
    `arena`: where they are to lie, if that matters.
    """

    offset: int
    limit: int
    epoch: int
    max_bytes: int
    arena: ResponseArena | None = None


class Part(Struct, frozen=True, gc=False):
    """Whole batches, the offset behind them, and what the header there says of its batch's size (0: unknown)."""

    data: memoryview
    next_offset: int
    following: int = 0


class NotCached(Struct, frozen=True):
    """Instead of what was to be read: that would wait for the disk. `load` blocks, on any thread, and brings it into
    the page cache; then the same read is made again."""

    load: Callable[[], object]


class Suspect(Struct, frozen=True, gc=False):
    """Instead of batches: the first one is damaged, or says that it is larger than is believed without a look."""


NOTHING = memoryview(b"")
SUSPECT = Suspect()


def place_at(file: File, position: int) -> BatchPlace | None:
    """By the header there, of which no more is read."""
    data = file.read(position, HEADER_SIZE) if position >= 0 else b""
    return _place(data, 0, position) if len(data) == HEADER_SIZE else None


def _place(window: Buffer, at: int, position: int) -> BatchPlace | None:
    """By the header at `at`; None where no sane one stands."""
    base, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, count = HEADER.unpack_from(window, at)
    size = length + LENGTH_OVERHEAD
    if magic != MAGIC or size < HEADER_SIZE or delta < 0:
        return None
    return BatchPlace(position, size, base, base + delta, max_timestamp, epoch, count)


def walk(file: File, position: int, end: int | None = None) -> Iterator[BatchPlace]:
    """Batch headers from `position` on; stops where no whole header or no sane batch stands."""
    window = b""
    start, size = position, FIRST_WINDOW_BYTES
    while end is None or position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            start, at = position, 0
            window = file.read(position, size)
            size = min(2 * size, WINDOW_BYTES)
            if len(window) < HEADER_SIZE:
                return
        place = _place(window, at, position)
        if place is None:
            return
        yield place
        position += place.size


def checked_walk(
    file: File, position: int, end: int, is_whole: Callable[[BatchPlace], bool]
) -> Generator[tuple[BatchPlace, bool], None, None]:
    """Like `walk`, and whether each batch is sound: every byte is read about once. `is_whole` is asked about those that
    are larger than a piece."""
    window = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        place = _place(window, at, position) if at + HEADER_SIZE <= len(window) else None
        if place is None or (place.size <= PIECE_BYTES and at + place.size > len(window)):
            window = memoryview(file.read(position, min(PIECE_BYTES, end - position)))
            start, at = position, 0
            place = _place(window, 0, position) if len(window) >= HEADER_SIZE else None
            if place is None:
                return
        if place.size > PIECE_BYTES:
            yield place, is_whole(place)
        else:
            batch = window[at : at + place.size]
            yield place, len(batch) == place.size and crc32c(batch[CRC_START:]) == stored_crc(batch)
        position += place.size


def is_sound(file: File, place: BatchPlace, end: int) -> bool:
    """Whole below file position `end`, and with the right checksum, which leaves out base offset, length and leader
    epoch. Never holds more than a piece of it: it may be a length that is wrong."""
    at, behind = place.position, place.position + place.size
    if behind > end:
        return False
    data = file.read(at, min(place.size, PIECE_BYTES))
    if len(data) < HEADER_SIZE:
        return False
    wanted, crc = stored_crc(data), crc32c(memoryview(data)[CRC_START:])
    at += len(data)
    while at < behind:
        data = file.read(at, min(behind - at, PIECE_BYTES))
        if not data:
            return False
        crc = crc32c(data, crc)
        at += len(data)
    return crc == wanted


def read_batches(
    file: File,
    position: int,
    room: int | None,
    wanted: Wanted,
    *,
    whole: bool,
    cached: bool,
    first: int = 0,
    checked: int = 0,
) -> Part | NotCached | Suspect | None:
    """Whole batches at `position`, checked bit by bit; at least one if `whole`, however large.

    `room`: how far they may reach in the file. `first`: the size of the first one, if the read before has seen it.
    `checked`: that size, if `is_sound` said so. An empty part means: the next batch does not fit. None: nothing is
    there. `NotCached` only if `cached`. A `Suspect` is no exception, because what it is
    about lies in this frame, and whoever remembered it would keep that.
    """
    max_bytes, arena = wanted.max_bytes, wanted.arena
    size = max(max_bytes, HEADER_SIZE)
    if first > max_bytes:
        if not whole:
            return Part(NOTHING, -1)
        first = 0
    elif first:
        # No part of a batch is read that is then cut off, if all are as large as this one.
        size = min(size, max_bytes // first * first + HEADER_SIZE)
    while True:
        if room is not None:
            size = min(size, room)
        data = file.read_cached(position, size, arena) if cached else file.read(position, size)
        if data is None:
            return NotCached(partial(file.read, position, size))
        if len(data) < HEADER_SIZE:
            return None
        at, next_offset, damaged, following = sound_batches(data, size, wanted.offset, wanted.limit, wanted.epoch)
        if at:
            view = memoryview(data)[:at]
            if arena is not None:
                arena.keep(view)
            return Part(view, next_offset, following)
        needed = HEADER.unpack_from(data)[1] + LENGTH_OVERHEAD
        end = room if room is not None else file.size() - position
        if damaged or needed > end:
            return SUSPECT
        if first and needed <= max_bytes:
            first, size = 0, max_bytes  # it was said to be smaller
            continue
        if not whole or size >= needed:
            return Part(NOTHING, -1)
        if needed > max(max_bytes, checked, UNCHECKED_BYTES_MAX):
            return SUSPECT
        size = needed


class BatchRun:
    """Batches one behind the other in a file, none of which reaches over position `end`: an extent of a pack, or a
    segment. Whatever a header says, no more is read because of it than lies there, and never more than a piece at once.

    `queue`: what a damage calls it. `end_offset`: behind the last record; -1 if that is not known.
    """

    __slots__ = ("file", "end", "queue", "end_offset")

    def __init__(self, file: File, end: int, queue: str, end_offset: int = -1) -> None:
        self.file = file
        self.end = end
        self.queue = queue
        self.end_offset = end_offset

    def indexed(self, position: int) -> Iterator[tuple[int, int]]:
        """(last offset, position) of batches behind a position, as an index knows them."""
        return iter(())

    def is_whole(self, place: BatchPlace) -> bool:
        return is_sound(self.file, place, self.end)

    def place_at(self, position: int) -> BatchPlace | None:
        return place_at(self.file, position) if position < self.end else None

    def seek(self, position: int, expected: int, offset: int) -> BatchPlace | None:
        """The batch that holds `offset`; None: the run ends before it. Walks from `position`, where offset `expected`
        lies, with an eye on each batch going on where the last ended.

        Damage on the way is stepped over where a batch behind it can be relied on; only if the offset lies between
        there and here it is raised.
        """
        while True:
            before: BatchPlace | None = None
            for place in walk(self.file, position, self.end):
                behind = place.position + place.size
                if place.base_offset != expected or behind > self.end:
                    break
                if place.last_offset >= offset:
                    if self._leads_on(place) or self.is_whole(place):
                        return place
                    break
                before, position, expected = place, behind, place.last_offset + 1
            if position >= self.end:
                return None
            if before is not None and not self.is_whole(before):
                position, expected = before.position, before.base_offset  # it is the one that lies
            going_on = self.behind_damage(position, expected)
            if going_on is None or going_on.base_offset > offset:
                raise self.damage(position, expected)
            position, expected = going_on.position, going_on.base_offset

    def _leads_on(self, place: BatchPlace) -> bool:
        behind = place.position + place.size
        following = self.place_at(behind)
        return following.base_offset == place.last_offset + 1 if following is not None else behind == self.end

    def behind_damage(self, position: int, expected: int) -> BatchPlace | None:
        """The first batch behind a bad one at `position` (of offset `expected`) that can be relied on.

        That is its neighbour, if the bad one's length is right, else the next that an index knows. Nobody looks for
        batches byte by byte: a client could have put one into a message.
        """
        bad = self.place_at(position)
        if bad is not None:
            place = self.place_at(position + bad.size)
            if place is not None and place.base_offset > expected and self.is_whole(place):
                return place
        for last, at in self.indexed(position):
            if last > expected:
                place = self.place_at(at)
                if place is not None and place.last_offset == last and place.base_offset > expected:
                    return place
        return None

    def damage(self, position: int, expected: int) -> Damage:
        """The batch at `position`, of offset `expected`, is bad."""
        going_on = self.behind_damage(position, expected)
        end = going_on.base_offset if going_on is not None else self.end_offset
        return Damage(Place(self.file.name, position, self.queue, expected, end))

    def look_closer(self, position: int, offset: int, epoch: int) -> BatchPlace:
        """The batch at `position` as a whole, after a read that doubted it: it holds `offset` and is sound, and has
        this leader epoch (any, if negative). Else its damage is raised."""
        place = self.place_at(position)
        if (
            place is None
            or not place.base_offset <= offset <= place.last_offset
            or 0 <= epoch != place.leader_epoch
            or not self.is_whole(place)
        ):
            raise self.damage(position, offset)
        return place

    def sound_walk(self, position: int, expected: int, limit: int) -> Iterator[BatchPlace]:
        """The batches from `position`, where offset `expected` lies, up to offset `limit`, each whole and with the
        right checksum; else `Damage`."""
        walked = checked_walk(self.file, position, self.end, self.is_whole)
        while expected < limit:  # what lies behind is not even looked at
            place, sound = next(walked, (None, False))
            if place is None or place.base_offset != expected or not sound:
                break
            yield place
            expected, position = place.last_offset + 1, place.position + place.size
        walked.close()  # what is raised here must not hold what was read
        if expected < limit and position < self.end:
            raise self.damage(position, expected)
