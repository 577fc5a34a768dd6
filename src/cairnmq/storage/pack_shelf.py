"""The packs that count, in the order of their records: reading a queue's batches from them, in broker and splitter.

Of one queue, a later pack holds later offsets; merging neighbours keeps that. The list is replaced, never changed, so
that lookups on other threads need no lock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby

from cairnmq.errors import Corrupt
from cairnmq.storage.damage import Damage
from cairnmq.storage.damage import Place as DamagePlace
from cairnmq.storage.disk import Disk, Unreadable
from cairnmq.storage.format import Extent, pack_name
from cairnmq.storage.pack import PackReader
from cairnmq.storage.queue_segment import BatchPlace, Part, Wanted, Warm, forget_oldest, is_sound, read_batches, walk

PLACES_KEPT = 8192

Place = tuple[PackReader, int, int, int]  # pack, position and size (0: not known) of the next batch, end of the extent


class PackShelf:
    """`packs` in order. One owner changes it; `read` with `cached` runs on the owner's thread and never blocks."""

    def __init__(self, disk: Disk, numbers: Iterable[int] = ()) -> None:
        self.disk = disk
        self.packs: list[PackReader] = []
        self.broken: dict[int, str] = {}  # packs that cannot be opened, and why
        self._numbers: list[int] = []
        self._places: dict[tuple[int, int], Place] = {}  # (queue id, next offset)
        self._last: dict[int, int] = {}  # queue id -> the place on the shelf of the pack it was read from last
        self.replace(numbers)

    @property
    def numbers(self) -> list[int]:
        """Broken ones too: they count as long as a checkpoint names them."""
        return list(self._numbers)

    @property
    def size(self) -> int:
        return sum(pack.size for pack in self.packs)

    def add(self, number: int) -> None:
        """One more. If it cannot be opened, it is tried again with the next `replace`."""
        try:
            self.packs = [*self.packs, PackReader.open(self.disk, number)]
        except (Corrupt, OSError) as error:
            self.broken[number] = str(error)
        self._numbers.append(number)

    def replace(self, numbers: Iterable[int]) -> None:
        """What counts from now on; packs that stay are not opened again. Old files close when their last read ends.

        One that cannot be opened costs only the records in it.
        """
        known = {pack.number: pack for pack in self.packs}
        self._numbers = list(numbers)
        packs, broken = [], {}
        for number in self._numbers:
            try:
                packs.append(known.get(number) or PackReader.open(self.disk, number))
            except (Corrupt, OSError) as error:
                broken[number] = str(error)
        self.packs, self.broken = packs, broken
        kept = set(self._numbers)
        self._places = {key: place for key, place in self._places.copy().items() if place[0].number in kept}

    def check(self, number: int) -> PackReader | None:
        """The pack, if its table still reads as it did when it was opened; else it is a broken one from now on."""
        pack = next((pack for pack in self.packs if pack.number == number), None)
        if pack is not None:
            try:
                pack.check_table()
            except (Damage, Unreadable) as error:
                self.packs = [other for other in self.packs if other is not pack]
                self.broken[number] = str(error)
                return None
        return pack

    def damages(self) -> list[DamagePlace]:
        """Packs that could not be opened; which queues are in them, their own tables would say."""
        return [
            DamagePlace(pack_name(number), 0 if self.disk.exists(pack_name(number)) else -1) for number in self.broken
        ]

    # ------------------------------------------------------------------------------------------------- by offset

    def read(self, queue_id: int, wanted: Wanted, *, whole: bool, cached: bool) -> Part | Warm:
        """At least one batch if `whole`, however large.

        An empty part means: the next batch does not fit. One part never reaches over the end of an extent.
        """
        offset = wanted.offset
        place = self._places.get((queue_id, offset)) or self._remember(queue_id, offset, cached=cached)
        if place is None:
            return partial(self._remember, queue_id, offset)
        pack, position, first, end = place
        try:
            part = read_batches(pack.file, position, end - position, wanted, whole=whole, cached=cached, first=first)
        except Damage:
            self._places.pop((queue_id, offset), None)
            raise self._damage_in(pack, queue_id, position, end, offset) from None
        if part is None:
            raise Damage(DamagePlace(pack.name, position, str(queue_id), offset, offset + 1), "the file ends there")
        if isinstance(part, Part) and 0 < len(part.data) < end - position:
            self._keep(queue_id, part.next_offset, (pack, position + len(part.data), part.following, end))
        return part

    def _remember(self, queue_id: int, offset: int, *, cached: bool = False) -> Place | None:
        """None, only if `cached`: looking it up waits for the disk."""
        packs = self.packs
        # who reads on finds the next records in the next pack, or soon behind it
        last = self._last.get(queue_id, max(0, len(packs) - 1))
        lost: Damage | None = None  # of a table that may have led to it
        for index in chain(range(last, len(packs)), range(min(last, len(packs)) - 1, -1, -1)):
            pack = packs[index]
            try:
                extent = pack.find(queue_id, offset, cached=cached)
            except Damage as damage:
                lost = damage
                continue
            if extent is True:
                return None
            if isinstance(extent, Extent):
                position = extent.position
                if offset > extent.base_offset:
                    if cached:
                        return None
                    position = _position_of(pack, extent, offset)
                place = (pack, position, 0, extent.position + extent.size)
                self._keep(queue_id, offset, place)
                self._last[queue_id] = index
                if len(self._last) > PLACES_KEPT:
                    self._last.pop(next(iter(self._last)), None)
                return place
        if lost is not None:
            raise Damage(
                DamagePlace(lost.place.file, lost.place.position, str(queue_id), offset), "no other pack has it"
            )
        if self.broken:
            number, why = next(iter(self.broken.items()))
            position = 0 if self.disk.exists(pack_name(number)) else -1
            raise Damage(
                DamagePlace(pack_name(number), position, str(queue_id), offset), f"no other pack has it; {why}"
            )
        raise Corrupt(f"no pack holds offset {offset} of queue {queue_id}")

    def _damage_in(self, pack: PackReader, queue_id: int, position: int, end: int, offset: int) -> Damage:
        """The batch at `position` is bad; the next one that its length leads to is the first that is not."""
        bad = next(walk(pack.file, position, end), None)
        following = next(walk(pack.file, position + bad.size, end), None) if bad is not None else None
        if following is not None and following.base_offset > offset and is_sound(pack.file, following):
            return Damage(DamagePlace(pack.name, position, str(queue_id), offset, following.base_offset))
        extent = pack.find(queue_id, offset)
        behind = extent.end_offset if isinstance(extent, Extent) else -1
        return Damage(DamagePlace(pack.name, position, str(queue_id), offset, behind))

    def _keep(self, queue_id: int, offset: int, place: Place) -> None:
        self._places[queue_id, offset] = place
        forget_oldest(self._places, PLACES_KEPT)

    # --------------------------------------------------------------------------------------------------- by queue

    def extents(self, queue_id: int) -> Iterator[tuple[PackReader, Extent]]:
        """All of a queue, in offset order. Blocks."""
        for pack in self.packs:
            for extent in pack.of_queue(queue_id):
                yield pack, extent

    def find_time(self, queue_id: int, timestamp: int, start: int, limit: int) -> BatchPlace | None:
        """The first batch from offset `start` to `limit` whose maximum timestamp reaches `timestamp`. Blocks."""
        self._refuse_gaps(queue_id, start, limit)
        for pack, extent in self.extents(queue_id):
            if extent.end_offset <= start or extent.max_timestamp < timestamp:
                continue
            pack.data(extent)  # damage is raised rather than stepped over: the answer may lie in it
            for place in walk(pack.file, extent.position, extent.position + extent.size):
                if place.last_offset >= start and place.max_timestamp >= timestamp:
                    return place if place.base_offset < limit else None
        return None

    def largest_timestamp(self, queue_id: int, start: int) -> int:
        """Of the batches behind offset `start`; -1 if there are none. Blocks."""
        return max((e.max_timestamp for _, e in self.extents(queue_id) if e.end_offset > start), default=-1)

    def _refuse_gaps(self, queue_id: int, start: int, limit: int) -> None:
        """While a pack cannot be opened, an answer about all of a queue needs that the others hold all of it."""
        if not self.broken:
            return
        expected = start
        for _, extent in self.extents(queue_id):
            if extent.base_offset > expected:
                break
            expected = max(expected, extent.end_offset)
        if expected < limit:
            number, why = next(iter(self.broken.items()))
            raise Damage(DamagePlace(pack_name(number), 0, str(queue_id), expected), why)

    def bytes_of(self, queue_id: int, start: int) -> int:
        return sum(extent.size for _, extent in self.extents(queue_id) if extent.end_offset > start)


def merged(packs: list[PackReader]) -> Iterator[tuple[int, list[tuple[PackReader, Extent]]]]:
    """Queue by queue, all extents in offset order: (queue id, [(pack, extent), ...]). Blocks."""
    runs = [_keyed(index, pack) for index, pack in enumerate(packs)]
    rows = heapq.merge(*runs, key=lambda row: row[0])
    for queue_id, group in groupby(rows, key=lambda row: row[0][0]):
        yield queue_id, [(packs[key[1]], extent) for key, extent in group]


def _keyed(index: int, pack: PackReader) -> Iterator[tuple[tuple[int, int], Extent]]:
    for extent in pack:
        yield (extent.queue_id, index), extent


def _position_of(pack: PackReader, extent: Extent, offset: int) -> int:
    """Of the batch holding `offset`: each batch goes on where the one before ends, or one of them is damaged."""
    end, expected = extent.position + extent.size, extent.base_offset
    at, before = extent.position, None
    for place in walk(pack.file, extent.position, end):
        at = place.position
        if place.position + place.size > end:
            break
        if place.base_offset != expected:
            # the one before says too little or too much, or this one does
            if before is None or is_sound(pack.file, before) or not is_sound(pack.file, place):
                break
            if before.base_offset <= offset < place.base_offset:
                at = before.position
                break
        if place.last_offset >= offset:
            following = next(walk(pack.file, place.position + place.size, end), None)
            if following is None or following.base_offset == place.last_offset + 1 or is_sound(pack.file, place):
                return place.position
            if following.base_offset > offset:
                break
        before, expected = place, place.last_offset + 1
    raise Damage(DamagePlace(pack.name, at, str(extent.queue_id), offset, extent.end_offset))
