"""Which files hold the records, when no checkpoint says so: every kind of copy that a stopped broker leaves."""

from __future__ import annotations

from array import array

from cairnmq.storage.checkpoint_repair.file_survey import Copy, JournalFound, PackFound, SegmentFound, Survey
from cairnmq.storage.checkpoint_repair.offset_ranges import OffsetRanges
from cairnmq.storage.checkpoint_repair.record_places import Known, Places, choose_packs, find_places, place_queue
from cairnmq.storage.files.format import NO_SEGMENTS, Extent

SIZE = 100  # of a batch in a journal


def extent(queue_id: int, start: int, end: int) -> Extent:
    return Extent(queue_id, start, end, 0, 0, end - start, end - start, 0)


def pack(number: int, *extents: tuple[int, int, int], bad: tuple[tuple[int, int, int], ...] = ()) -> PackFound:
    copies: dict[int, list[Copy]] = {}
    for queue_id, start, end in extents:
        copies.setdefault(queue_id, []).extend(Copy(offset, offset + 1, 7) for offset in range(start, end))
    return PackFound(number, 0, [extent(*each) for each in extents], [extent(*each) for each in bad], copies)


def segment(start: int, end: int, *, crc: int = 7, torn: bool = False) -> SegmentFound:
    copies = [Copy(offset, offset + 1, crc) for offset in range(start, end)]
    return SegmentFound(start, [(start, end)] if end > start else [], copies, is_torn=torn)


def journal(*batches: tuple[int, int], begin: int = 0, number: int = 0) -> JournalFound:
    """Batches of one record each, (queue, offset), one after the other."""
    positions = [begin + index * SIZE for index in range(len(batches))]
    return JournalFound(
        number,
        5,
        begin,
        begin + len(batches) * SIZE,
        array("Q", positions),
        array("Q", [queue_id for queue_id, _ in batches]),
        array("q", [offset for _, offset in batches]),
        array("q", [offset + 1 for _, offset in batches]),
        array("I", [7] * len(batches)),
        [],
        [(begin, 1)],
    )


def found(
    survey: Survey, *, queues: int = 2, compacted: tuple[int, ...] = (), splits: dict[int, int] | None = None
) -> Places:
    for each in survey.journals:
        for queue_id, base in zip(each.queue_ids, each.bases, strict=True):
            survey.firsts[queue_id] = min(base, survey.firsts.get(queue_id, base))
    return find_places(survey, Known(range(1, queues + 1), compacted, splits or {}, {}))


# ------------------------------------------------------------------------------------------------------------ ranges


def test_ranges_join_and_say_what_is_missing() -> None:
    ranges = OffsetRanges([(5, 8), (0, 2), (8, 9), (2, 2)])
    assert list(ranges) == [(0, 2), (5, 9)] and (ranges.start, ranges.end) == (0, 9)
    assert list(ranges.gaps(1, 12)) == [(2, 5), (9, 12)]
    assert ranges.covers(5, 9) and not ranges.covers(1, 6) and ranges.covers(3, 3)
    assert ranges.overlaps(1, 5) and not ranges.overlaps(2, 5) and not ranges.overlaps(6, 6)
    ranges.add(1, 6)
    assert list(ranges) == [(0, 9)] and not OffsetRanges()


# ------------------------------------------------------------------------------------------------------------- packs


def numbers(*packs: PackFound) -> list[int]:
    return [each.number for each in choose_packs(packs)]


def test_a_merged_pack_counts_instead_of_those_it_was_made_from() -> None:
    one, two, three = pack(1, (1, 0, 5)), pack(2, (1, 5, 8), (2, 0, 1)), pack(3, (1, 8, 9))
    assert numbers(one, two, three) == [1, 2, 3]
    assert numbers(one, two, three, pack(4, (1, 0, 8), (2, 0, 1))) == [4, 3], "in the order of their records"
    # queue 2 is deleted, so the merge has left it out: its pack does not count all the same
    assert numbers(one, two, three, pack(4, (1, 0, 8))) == [4, 3]


def test_a_merged_pack_that_does_not_read_back() -> None:
    one, two = pack(1, (1, 0, 5)), pack(2, (1, 5, 8))
    damaged = pack(4, (1, 0, 4), bad=((1, 4, 8),))
    assert numbers(one, two, damaged) == [1, 2], "all that it was made from is there"
    assert numbers(two, damaged) == [4]
    assert numbers(one, two, PackFound(4)) == [1, 2]


# ------------------------------------------------------------------------------------------------------- one queue


def test_a_promoted_queue_has_packs_and_then_segments() -> None:
    place = place_queue(OffsetRanges([(0, 10)]), [segment(10, 20), segment(20, 30)])
    assert (place.segments_from, place.segments, list(place.held)) == (10, [10, 20], [(0, 30)])


def test_a_demoted_queue_is_read_from_packs() -> None:
    """Its directory is still there, with or without records that came later."""
    for end in (30, 35):
        place = place_queue(OffsetRanges([(0, end)]), [segment(10, 20), segment(20, 30)])
        assert (place.segments_from, place.segments) == (NO_SEGMENTS, [])


def test_gathered_segments_count_when_all_of_the_packs_is_copied() -> None:
    packed = OffsetRanges([(0, 10)])
    assert place_queue(packed, [segment(0, 6), segment(6, 10), segment(10, 20)]).segments_from == 0
    place = place_queue(packed, [segment(6, 10), segment(10, 20)])
    assert (place.segments_from, place.stray) == (10, [6])


def test_a_compacted_segment_supersedes_those_it_was_made_from() -> None:
    place = place_queue(OffsetRanges(), [segment(0, 30), segment(10, 20), segment(20, 30), segment(30, 40)])
    assert (place.segments, place.swaps) == ([0, 30], ((0, 10, 20),))


def test_a_file_that_is_gone_was_deleted_unless_damage_explains_it() -> None:
    assert place_queue(OffsetRanges(), [segment(0, 10), segment(20, 30)]).first == 20
    assert place_queue(OffsetRanges(), [segment(0, 10, torn=True), segment(20, 30)]).first == 0
    assert place_queue(OffsetRanges([(0, 10), (20, 30)]), [], damaged=OffsetRanges([(10, 20)])).first == 0


# ---------------------------------------------------------------------------------------------------------- journals


def test_a_journal_is_split_up_to_the_first_batch_that_no_queue_log_has() -> None:
    batches = [(1, 4), (2, 0), (1, 5), (2, 1), (1, 6)]
    survey = Survey([journal(*batches, begin=500)], segments={1: [segment(0, 7)], 2: [segment(0, 1)]})
    places = found(survey)
    assert places.splits == {0: 500 + 3 * SIZE} and places.ends == {1: 6, 2: 1}


def test_a_pack_that_reaches_too_far_is_split_again() -> None:
    """A round that was not finished: its pack is there, a segment of the same round is not."""
    batches = [(1, 4), (2, 0), (1, 5), (2, 1)]
    packs = [pack(1, (1, 0, 4)), pack(2, (1, 4, 5), (2, 0, 1)), pack(3, (1, 5, 6))]
    survey = Survey([journal(*batches, begin=500)], packs=packs)
    assert found(survey).packs == [1, 2, 3]
    survey = Survey([journal(*batches, begin=500)], packs=[packs[0], pack(2, (1, 4, 6))])
    places = found(survey)
    assert (places.packs, places.splits, places.ends) == ([1], {0: 500}, {1: 4, 2: 0})


def test_a_pack_that_alone_holds_records_proves_a_checkpoint() -> None:
    """Queue 2 has lost a segment; its records in the journal are not worth those of queue 1 before the journal."""
    survey = Survey([journal((2, 0), (1, 4), begin=500)], packs=[pack(1, (1, 0, 5))])
    places = found(survey)
    assert (places.packs, places.splits, places.ends) == ([1], {0: 700}, {1: 5, 2: 1})


def test_a_batch_of_compaction_proves_a_checkpoint() -> None:
    """It stands for offsets 0 to 3, and cannot be cut at 2."""
    hollow = SegmentFound(0, [(0, 4)], [Copy(0, 4, 9)])
    batches = [(1, 0), (1, 1), (2, 0), (1, 2), (1, 3)]
    survey = Survey([journal(*batches)], segments={1: [hollow]})
    places = found(survey, compacted=(1,))
    assert places.splits == {0: 5 * SIZE} and places.ends == {1: 4, 2: 1}
    assert places.queues[1].rewritten


def test_a_segment_begun_after_the_checkpoint_does_not_count() -> None:
    survey = Survey([journal((2, 0), (1, 4), begin=500)], packs=[pack(1, (1, 0, 4))], segments={1: [segment(4, 5)]})
    places = found(survey)
    assert places.queues[1].segments_from == NO_SEGMENTS and places.ends == {1: 4, 2: 0}


def test_where_log_and_journal_differ_the_journal_counts() -> None:
    survey = Survey([journal((1, 4), (1, 5), begin=500)], segments={1: [segment(0, 5), segment(5, 6, crc=8)]})
    assert found(survey).splits == {0: 600}
    survey = Survey([journal((1, 4), (1, 5), begin=500)], segments={1: [segment(0, 5), segment(5, 6, crc=8)]})
    assert found(survey, compacted=(1,)).splits == {0: 700}, "unless it was compacted"


def test_damage_that_the_journal_holds_is_split_again() -> None:
    segments = [segment(0, 5, torn=True), segment(6, 7)]
    survey = Survey([journal((1, 4), (1, 5), (1, 6), begin=500)], segments={1: segments})
    assert found(survey).splits == {0: 600}
    survey = Survey([journal((1, 6), begin=500)], segments={1: segments})
    assert found(survey).splits == {0: 600}, "it does not; nothing is gained"


def test_a_hole_in_a_journal_was_split_if_what_follows_was() -> None:
    damaged = journal((1, 4), (1, 5), (2, 0), begin=500)
    damaged.holes.append((560, 600))
    assert found(Survey([damaged], segments={1: [segment(0, 6)]})).splits == {0: 700}
    assert found(Survey([damaged], segments={1: [segment(0, 5)]})).splits == {0: 560}
    assert found(Survey([damaged], segments={1: [segment(0, 5)]}), splits={0: 600}).splits == {0: 600}
