"""Which of the files that were found hold the records, without a checkpoint that says so. Pure.

Merges, demotions, promotions and compaction leave copies when a broker is killed. The rules (ADR 0016):
of packs that hold the same offsets of a queue the later one counts; segments count where they reach the end of the
queue; and a journal is split up to the first batch that no queue log has.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field

from cairnmq.storage.checkpoint_repair.file_survey import Copy, JournalFound, PackFound, SegmentFound, Survey
from cairnmq.storage.checkpoint_repair.offset_ranges import OffsetRanges
from cairnmq.storage.files.format import NO_SEGMENTS, Extent

NO_OFFSET = 1 << 62
NOTHING = OffsetRanges()


class Known(Struct, frozen=True):
    """What is known before any file of a queue was looked at, each by queue or journal."""

    queues: Collection[int]  # those that exist
    compacted: Collection[int]  # those of them that are compacted
    splits: Mapping[int, int]  # of each journal: up to here everything is in queue logs
    ends: Mapping[int, int]  # likewise, by offset; and where log starts were moved to


class QueuePlace(Struct):
    """Where a queue's records are. `held`: offsets that read back. `first`: before it a file is gone, as happens when
    the log start moves. `end`: up to here they need no journal."""

    segments_from: int = NO_SEGMENTS
    segments: list[int] = []  # that count, each by its base
    swaps: tuple[tuple[int, ...], ...] = ()
    stray: list[int] = []  # segments that do not count
    held: OffsetRanges = field(default_factory=OffsetRanges)
    copies: list[Copy] = []
    first: int = 0
    end: int = 0
    is_torn: bool = False
    rewritten: bool = False  # journals hold something else

    def packed_end(self, end: int) -> int:
        return end if self.segments_from == NO_SEGMENTS else self.segments_from

    def bounds(self, end: int) -> Iterator[tuple[int, int]]:
        """Of each segment its base, and where the next one begins; the queue ends at `end`."""
        return pairwise([*self.segments, end])


class Places(Struct):
    """`splits`: by journal, where it goes on. `ends`: by queue, where it ends there."""

    queues: dict[int, QueuePlace]
    packs: list[int]  # in the order of their records
    splits: dict[int, int]
    ends: dict[int, int]


def find_places(survey: Survey, known: Known) -> Places:
    """What is found may prove that a checkpoint knew more than is known of it: then the search begins again."""
    splits, excluded = dict(known.splits), set[int]()
    segments = dict(survey.segments)
    crcs = _journal_crcs(survey.journals)
    while True:
        chosen = choose_packs([pack for pack in survey.packs if pack.number not in excluded])
        queues = _place_all(segments, known, chosen)
        for queue_id, place in queues.items():
            _find_end(place, queue_id, survey, known, crcs.get(queue_id, {}))
        found = {journal.number: _split(journal, queues, splits) for journal in survey.journals}
        ends = _ends(survey.journals, queues, known, found)
        places = Places(queues, [pack.number for pack in chosen], found, ends)
        too_long = [pack for pack in chosen if _is_too_long(pack, places)]
        proven = [
            *_over_the_end(places),
            *(end for pack in too_long if not _is_elsewhere(pack, survey, known, excluded) for end in _pack_ends(pack)),
        ]
        if _raise(splits, survey.journals, places, proven):
            continue
        # Segments that begin where nothing is split any more were begun after the last checkpoint.
        too_late = [queue_id for queue_id, place in queues.items() if place.segments_from >= max(ends[queue_id], 0)]
        if not (too_long or too_late):
            return places
        excluded.update(pack.number for pack in too_long)
        for queue_id in too_late:
            del segments[queue_id]


def _find_end(place: QueuePlace, queue_id: int, survey: Survey, known: Known, crcs: Mapping[int, int]) -> None:
    """What does not read back in a queue log, and does in a journal, is taken from there, with all that follows."""
    differs = _first_difference(place.copies, crcs)
    place.rewritten = differs < NO_OFFSET
    end = _end(
        place.held, survey.firsts.get(queue_id, NO_OFFSET), NO_OFFSET if queue_id in known.compacted else differs
    )
    place.end = max(end, known.ends.get(queue_id, 0))


def _over_the_end(places: Places) -> Iterator[tuple[int, int]]:
    """Queues and offsets: batches of a queue log that lie over its end. Compaction makes such, and not before a
    checkpoint knows all of the records."""
    for queue_id, end in places.ends.items():
        yield from ((queue_id, copy.end) for copy in places.queues[queue_id].copies if copy.base < end < copy.end)


def _is_too_long(pack: PackFound, places: Places) -> bool:
    """It would hold what is split once more, into another pack."""
    for extent in pack.extents or ():
        place = places.queues.get(extent.queue_id)
        if (
            place is not None
            and place.segments_from == NO_SEGMENTS
            and extent.end_offset > places.ends[extent.queue_id]
        ):
            return True
    return False


def _is_elsewhere(pack: PackFound, survey: Survey, known: Known, excluded: Collection[int]) -> bool:
    """All that it holds is in journals and other files too. Else a checkpoint has named it: before that, nothing is
    removed of what it was made from."""
    held: dict[int, OffsetRanges] = {}
    for other in survey.packs:
        if other is not pack and other.number not in excluded:
            for extent in other.extents or ():
                held.setdefault(extent.queue_id, OffsetRanges()).add(extent.base_offset, extent.end_offset)
    for extent in pack.extents or ():
        if extent.queue_id not in known.queues:
            continue
        others = held.setdefault(extent.queue_id, OffsetRanges())
        for segment in survey.segments.get(extent.queue_id, ()):
            for start, end in segment.runs:
                others.add(start, end)
        first = survey.firsts.get(extent.queue_id, NO_OFFSET)
        if any(gap[0] < first for gap in others.gaps(extent.base_offset, extent.end_offset)):
            return False
    return True


def _pack_ends(pack: PackFound) -> Iterator[tuple[int, int]]:
    return ((extent.queue_id, extent.end_offset) for extent in pack.extents or ())


def _raise(
    splits: dict[int, int], journals: Iterable[JournalFound], places: Places, proven: Sequence[tuple[int, int]]
) -> bool:
    """Everything of these queues below these offsets is in queue logs, and so is all that stands before it in a
    journal. False: that was known."""
    ends: dict[int, int] = {}
    for queue_id, end in proven:
        ends[queue_id] = max(end, ends.get(queue_id, 0))
    changed = False
    for journal in journals if ends else ():
        at = bisect_left(journal.positions, places.splits[journal.number])
        for index in range(len(journal.positions) - 1, at - 1, -1):
            if journal.ends[index] <= ends.get(journal.queue_ids[index], -1):
                splits[journal.number] = journal.positions[index] + 1
                changed = True
                break
    return changed


# ------------------------------------------------------------------------------------------------------------ packs


def choose_packs(packs: Sequence[PackFound]) -> list[PackFound]:
    """Those that count, in the order of their records. A later pack that holds any offset of an earlier one was made
    from it, and holds all of it that was still wanted. If it does not read back, those that it was made from count,
    as long as they have everything."""
    opened = sorted((pack for pack in packs if pack.extents is not None), key=lambda pack: -pack.number)
    taken: dict[int, OffsetRanges] = {}
    chosen: list[PackFound] = []
    for index, pack in enumerate(opened):
        extents = [*(pack.extents or ()), *pack.bad]
        if any(e.queue_id in taken and taken[e.queue_id].overlaps(e.base_offset, e.end_offset) for e in extents):
            continue
        if pack.bad and _have_all(opened[index + 1 :], extents):
            continue
        chosen.append(pack)
        for extent in extents:
            taken.setdefault(extent.queue_id, OffsetRanges()).add(extent.base_offset, extent.end_offset)
    return _in_order(chosen)


def _have_all(packs: Iterable[PackFound], extents: Iterable[Extent]) -> bool:
    held: dict[int, OffsetRanges] = {}
    for pack in packs:
        for extent in pack.extents or ():
            held.setdefault(extent.queue_id, OffsetRanges()).add(extent.base_offset, extent.end_offset)
    return all(e.queue_id in held and held[e.queue_id].covers(e.base_offset, e.end_offset) for e in extents)


def _in_order(packs: Iterable[PackFound]) -> list[PackFound]:
    """Of one queue, a later pack holds later offsets."""
    by_number = {pack.number: pack for pack in packs}
    extents = sorted(
        (e.queue_id, e.base_offset, pack.number)
        for pack in by_number.values()
        for e in (*(pack.extents or ()), *pack.bad)
    )
    later: dict[int, set[int]] = {number: set() for number in by_number}
    for (queue, _, one), (other_queue, _, other) in zip(extents, extents[1:], strict=False):
        if queue == other_queue and one != other:
            later[one].add(other)
    waits = dict.fromkeys(by_number, 0)
    for others in later.values():
        for number in others:
            waits[number] += 1
    ready = [number for number, count in waits.items() if not count]
    heapq.heapify(ready)
    ordered: list[PackFound] = []
    while ready:
        number = heapq.heappop(ready)
        ordered.append(by_number.pop(number))
        for other in later[number]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, other)
    return [*ordered, *(by_number[number] for number in sorted(by_number))]


# ----------------------------------------------------------------------------------------------------------- queues


def _place_all(
    segments: Mapping[int, Sequence[SegmentFound]], known: Known, chosen: Iterable[PackFound]
) -> dict[int, QueuePlace]:
    packed: dict[int, OffsetRanges] = {}
    damaged: dict[int, OffsetRanges] = {}
    copies: dict[int, list[Copy]] = {}
    for pack in chosen:
        for ranges, extents in ((packed, pack.extents or ()), (damaged, pack.bad)):
            for extent in extents:
                ranges.setdefault(extent.queue_id, OffsetRanges()).add(extent.base_offset, extent.end_offset)
        for queue_id, some in pack.copies.items():
            copies.setdefault(queue_id, []).extend(some)
    return {
        queue_id: place_queue(
            packed.get(queue_id, OffsetRanges()),
            segments.get(queue_id, ()),
            copies.get(queue_id, ()),
            damaged.get(queue_id, OffsetRanges()),
        )
        for queue_id in known.queues
    }


def place_queue(
    packed: OffsetRanges,
    segments: Sequence[SegmentFound],
    copies: Iterable[Copy] = (),
    damaged: OffsetRanges = NOTHING,
) -> QueuePlace:
    """`packed`: what packs hold of it; `damaged`: what they hold and does not read back; `copies`: batches in them that
    a journal has too."""
    place = QueuePlace()
    live: list[SegmentFound] = []
    swapped: dict[int, list[int]] = {}
    for segment in segments:
        if live and segment.base < live[-1].end:
            swapped.setdefault(live[-1].base, []).append(segment.base)
            continue
        live.append(segment)
        if segment.swapped:
            swapped.setdefault(segment.base, [])
    top = max((segment.end for segment in live), default=-1)
    if packed and (packed.end > top or (packed.end == top and packed.covers(live[0].base, top))):
        live = []
    first = len(live) - 1
    while first > 0 and not packed.overlaps(live[first - 1].end, live[first].base):
        first -= 1
    if packed and live and packed.start < live[first].base < packed.end:
        # Copies of what packs hold count when all of it is copied. Till then segments begin where packs end.
        first = next((at for at, segment in enumerate(live) if segment.base == packed.end), first)
    used = live[max(first, 0) :]
    if used:
        place.segments_from = used[0].base
        place.is_torn = used[-1].is_torn
        place.swaps = tuple((base, *swapped[base]) for segment in used if (base := segment.base) in swapped)
    place.segments = [segment.base for segment in used]
    over = {base for swap in place.swaps for base in swap[1:]}
    place.stray = [s.base for s in segments if s.base not in over and s.base not in place.segments] if used else []
    limit = place.packed_end(NO_OFFSET)
    for start, end in packed:
        place.held.add(start, min(end, limit))
    for segment in used:
        for start, end in segment.runs:
            place.held.add(start, end)
    place.copies = [copy for copy in copies if copy.base < limit]
    place.copies += (copy for segment in used for copy in segment.copies)
    place.first = _first(place.held, used, damaged)
    return place


def _first(held: OffsetRanges, segments: Sequence[SegmentFound], damaged: OffsetRanges) -> int:
    """After the last hole that no damage explains."""
    ranges = list(held)
    for (_, start), (end, _) in reversed(list(pairwise(ranges))):
        inside = any(
            segment.base <= start and (start < segment.end or _ends_badly(segment, start)) for segment in segments
        )
        if not inside and not damaged.overlaps(start, end):
            return end
    return ranges[0][0] if ranges else 0


def _ends_badly(segment: SegmentFound, offset: int) -> bool:
    return segment.is_torn and segment.end == offset


def lost_segments(held: OffsetRanges, segments: Iterable[SegmentFound], first: int) -> bool:
    """Whether segments that do not count hold something that neither packs nor journals do, which begin at `first`."""
    runs = [run for segment in segments for run in segment.runs]
    return any(gap[0] < first for start, end in runs for gap in held.gaps(start, end))


# --------------------------------------------------------------------------------------------------------- journals


def _journal_crcs(journals: Iterable[JournalFound]) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for journal in journals:
        for queue_id, base, crc in zip(journal.queue_ids, journal.bases, journal.crcs, strict=True):
            found.setdefault(queue_id, {})[base] = crc
    return found


def _first_difference(copies: Iterable[Copy], crcs: Mapping[int, int]) -> int:
    """The first offset of a batch that the journal has otherwise, or has no batch for."""
    differ = (copy.base for copy in copies if copy.base in crcs and crcs[copy.base] != copy.crc)
    return min(differ, default=NO_OFFSET)


def _end(held: OffsetRanges, first: int, differs: int) -> int:
    """Up to where the queue log is better than the journal, which holds offsets from `first` on."""
    end = 0
    for start, limit in held:
        if end >= first and start > end:
            break
        end = limit
    return min(end, max(differs, 0))


def _split(journal: JournalFound, queues: Mapping[int, QueuePlace], splits: Mapping[int, int]) -> int:
    """The position of the first batch that is not in a queue log.

    Journals are split in order. So if a batch after a hole was split, the hole was too; else it is for the start to
    judge, and all before it must be found there.
    """
    begin = max(journal.begin, splits.get(journal.number, 0))
    holes = iter([hole for hole in journal.holes if hole[0] >= begin])
    hole = next(holes, None)
    unsure: int | None = None
    for index in range(bisect_left(journal.positions, begin), len(journal.positions)):
        position = journal.positions[index]
        while hole is not None and hole[0] < position:
            unsure = hole[0] if unsure is None else unsure
            hole = next(holes, None)
        place = queues.get(journal.queue_ids[index])
        if place is None:
            continue
        if journal.ends[index] > place.end:
            return position if unsure is None else unsure
        unsure = None
    if unsure is None and hole is not None:
        unsure = hole[0]
    return unsure if unsure is not None else max(begin, journal.end)


def _ends(
    journals: Iterable[JournalFound], queues: Mapping[int, QueuePlace], known: Known, splits: Mapping[int, int]
) -> dict[int, int]:
    """Where each queue ends at the split positions: there the journal goes on."""
    ends = {queue_id: max(place.end, known.ends.get(queue_id, 0)) for queue_id, place in queues.items()}
    firsts: dict[int, int] = {}
    for journal in journals:
        for queue_id, base, end, is_split in _batches(journal, splits[journal.number]):
            if queue_id not in ends:
                continue
            if is_split:
                ends[queue_id] = max(ends[queue_id], end)
            else:
                firsts[queue_id] = min(base, firsts.get(queue_id, base))
    return ends | firsts


def _batches(journal: JournalFound, split: int) -> Iterator[tuple[int, int, int, bool]]:
    rows = zip(journal.positions, journal.queue_ids, journal.bases, journal.ends, strict=True)
    for position, queue_id, base, end in rows:
        yield queue_id, base, end, position < split
