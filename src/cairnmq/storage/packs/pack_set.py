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
from cairnmq.os_errors import text_of
from cairnmq.storage.batches.batch_run import BatchPlace, BatchRun, NotCached, Part, Suspect, Wanted, read_batches, walk
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.damage import Place as DamagePlace
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import Extent, QueueRow, pack_name
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.segments.segment import forget_oldest

PLACES_KEPT = 8192

# pack, position and size (0: not known) of the next batch, end of the extent, and that size again if all of the batch
# was looked at
Place = tuple[PackReader, int, int, int, int]


class PackSet:
    """`packs` in order. One owner changes it; `read` with `cached` runs on the owner's thread and never blocks."""

    def __init__(self, disk: Disk, numbers: Iterable[int] = ()) -> None:
        self.disk = disk
        self.packs: list[PackReader] = []
        self.broken: dict[int, str] = {}  # packs that cannot be opened, and why
        self._numbers: list[int] = []
        self._places: dict[tuple[int, int], Place] = {}  # (queue id, next offset)
        self._last: dict[int, int] = {}  # queue id -> the place of the pack it was read from last
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
            self.broken[number] = text_of(error)
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
                broken[number] = text_of(error)
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
                self.broken[number] = text_of(error)
                return None
        return pack

    def damages(self) -> list[DamagePlace]:
        """Packs that could not be opened; which queues are in them, their own tables would say."""
        return [
            DamagePlace(pack_name(number), 0 if self.disk.exists(pack_name(number)) else -1) for number in self.broken
        ]

    # ------------------------------------------------------------------------------------------------- by offset

    def read(self, queue_id: int, wanted: Wanted, *, whole: bool, cached: bool) -> Part | NotCached:
        """At least one batch if `whole`, however large.

        An empty part means: the next batch does not fit. One part never reaches over the end of an extent.
        """
        offset = wanted.offset
        place = self._places.get((queue_id, offset)) or self._remember(queue_id, offset, cached=cached)
        if place is None:
            return NotCached(partial(self._remember, queue_id, offset))
        pack, position, first, end, checked = place
        part = read_batches(
            pack.file, position, end - position, wanted, whole=whole, cached=cached, first=first, checked=checked
        )
        if isinstance(part, Part):
            if 0 < len(part.data) < end - position:
                self._keep(queue_id, part.next_offset, (pack, position + len(part.data), part.following, end, 0))
            return part
        if isinstance(part, Suspect) and not checked:
            if cached:
                return NotCached(partial(self._look_closer, queue_id, wanted, place))
            self._look_closer(queue_id, wanted, place)
            return self.read(queue_id, wanted, whole=whole, cached=False)
        if part is None or isinstance(part, Suspect):
            self._places.pop((queue_id, offset), None)
            raise Damage(DamagePlace(pack.name, position, str(queue_id), offset, offset + 1), "it does not read back")
        return part

    def _look_closer(self, queue_id: int, wanted: Wanted, place: Place) -> None:
        """At the batch there as a whole, which a read doubted: it is as large as it says, or its damage is raised."""
        pack, position, _, end, _ = place
        self._places.pop((queue_id, wanted.offset), None)
        extent = pack.find(queue_id, wanted.offset)
        run = BatchRun(pack.file, end, str(queue_id), extent.end_offset if isinstance(extent, Extent) else -1)
        size = run.look_closer(position, wanted.offset, wanted.epoch).size
        self._keep(queue_id, wanted.offset, (pack, position, size, end, size))

    def _remember(self, queue_id: int, offset: int, *, cached: bool = False) -> Place | None:
        """None, only if `cached`: looking it up waits for the disk."""
        packs = self.packs
        # who reads on finds the next records in the next pack, or soon behind it
        last = self._last.get(queue_id, max(0, len(packs) - 1))
        lost: DamagePlace | None = None  # in a table that may have led to it
        for index in chain(range(last, len(packs)), range(min(last, len(packs)) - 1, -1, -1)):
            pack = packs[index]
            try:
                extent = pack.find(queue_id, offset, cached=cached)
            except Damage as damage:
                lost = damage.place
                continue
            if extent is True:
                return None
            if isinstance(extent, Extent):
                position = extent.position
                if offset > extent.base_offset:
                    if cached:
                        return None
                    position = _position_of(pack, extent, offset)
                place = (pack, position, 0, extent.position + extent.size, 0)
                self._keep(queue_id, offset, place)
                self._last[queue_id] = index
                forget_oldest(self._last, PLACES_KEPT)
                return place
        if lost is not None:
            raise Damage(DamagePlace(lost.file, lost.position, str(queue_id), offset), "no other pack has it")
        if self.broken:
            number, why = next(iter(self.broken.items()))
            position = 0 if self.disk.exists(pack_name(number)) else -1
            raise Damage(
                DamagePlace(pack_name(number), position, str(queue_id), offset), f"no other pack has it; {why}"
            )
        raise Corrupt(f"no pack holds offset {offset} of queue {queue_id}")

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


def gaps(row: QueueRow, held: list[Extent]) -> Iterator[tuple[int, int]]:
    """Ranges of offsets that packs must hold by the row, and these extents (in offset order) do not."""
    expected, end = row.log_start, row.packed_end
    for extent in held:
        if expected >= end:
            return
        if extent.base_offset > expected:
            yield expected, min(extent.base_offset, end)
        expected = max(expected, extent.end_offset)
    if expected < end:
        yield expected, end


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
    """Of the batch holding `offset`."""
    run = BatchRun(pack.file, extent.position + extent.size, str(extent.queue_id), extent.end_offset)
    place = run.seek(extent.position, extent.base_offset, offset)
    if place is None:
        raise Damage(DamagePlace(pack.name, extent.position, str(extent.queue_id), offset, extent.end_offset))
    return place.position
