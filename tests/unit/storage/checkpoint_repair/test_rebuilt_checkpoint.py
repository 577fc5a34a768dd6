"""What journals and pieces of checkpoints give together, what is missing between them, and how that is told."""

from __future__ import annotations

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.checkpoint_repair.checkpoint_pieces import Pieces
from cairnmq.storage.checkpoint_repair.file_survey import JournalFound, PackFound, Survey
from cairnmq.storage.checkpoint_repair.offset_ranges import OffsetRanges
from cairnmq.storage.checkpoint_repair.rebuilt_checkpoint import (
    Gap,
    JournalFacts,
    find_gaps,
    find_losses,
    log_start,
    packs_that_count,
    rebuilt_image,
    rebuilt_keyed,
    rebuilt_marks,
)
from cairnmq.storage.checkpoint_repair.record_places import Places, QueuePlace
from cairnmq.storage.files.format import Extent, JournalMark, ProducerRow, QueueRow
from cairnmq.storage.segments.queue_log import QueueSpec

SPEC = QueueSpec(1, "t", 0, bytes(16), LogConfig())
UNDECIDED = {"transaction"}


def pieces(split: int, *, missing: list[tuple[int, int, int]] | None = None, row: QueueRow | None = None) -> Pieces:
    image = CheckpointImage()
    image.marks = {0: JournalMark(0, split, split, 1, 7)} if split else {}
    image.queues = {1: row} if row is not None else {}
    image.serial = 5
    return Pieces(image, missing or [])


def survey(begin: int, *, holes: list[tuple[int, int]] | None = None, packs: list[PackFound] | None = None) -> Survey:
    return Survey([JournalFound(0, 7, begin, 1000, holes=holes or [], epochs=[(begin, 3)])], packs=packs or [])


def places(place: QueuePlace, end: int, packs: list[int] | None = None) -> Places:
    return Places({1: place}, packs or [], {0: 900}, {1: end})


def held(*ranges: tuple[int, int], first: int = 0, torn: bool = False, end: int = 0) -> QueuePlace:
    return QueuePlace(held=OffsetRanges(ranges), first=first, end=end, is_torn=torn)


def losses(
    place: QueuePlace, row: QueueRow | None, gaps: list[Gap], **more: Pieces | Survey | JournalFacts
) -> list[str]:
    found = find_losses(
        more.get("pieces", pieces(500)),  # type: ignore[arg-type]
        more.get("survey", survey(400)),  # type: ignore[arg-type]
        places(place, row.end if row is not None else 0),
        {1: row} if row is not None else {},
        [SPEC],
        gaps,
        more.get("facts", JournalFacts()),  # type: ignore[arg-type]
        "noon",
    )
    return found.lines


# -------------------------------------------------------------------------------------------------------------- gaps


def test_there_is_no_gap_where_the_journal_reaches_back() -> None:
    assert find_gaps(pieces(500), survey(400), {0: 900}) == []
    assert find_gaps(pieces(0), survey(0), {0: 900}) == []
    assert find_gaps(pieces(500, missing=[(0, 450, 480)]), survey(400), {0: 900}) == []


def test_gaps_before_the_journal_and_in_it() -> None:
    assert find_gaps(pieces(300), survey(400), {0: 900}) == [Gap(0, 300, 400, True)]
    assert find_gaps(pieces(500, missing=[(0, 300, 450)]), survey(400), {0: 900}) == [Gap(0, 300, 400, True)]
    damaged = survey(400, holes=[(420, 430), (600, 650), (950, 960)])
    assert find_gaps(pieces(500), damaged, {0: 900}) == [Gap(0, 600, 650, True)], "one is known, one is for the start"


# ------------------------------------------------------------------------------------------------------------- facts


def test_what_is_undecided_counts_only_when_it_is_sure_to_be_the_latest() -> None:
    known = pieces(500)
    known.image.keyed = {("offset", b"g"): b"old", ("offset", b"h"): b"old", ("transaction", b"a"): b"old"}
    facts = JournalFacts(
        {
            ("offset", b"g"): (550, b"new"),
            ("offset", b"h"): (551, None),
            ("transaction", b"b"): (550, b"new"),
            ("transaction", b"c"): (700, b"new"),
        }
    )
    assert rebuilt_keyed(known, facts, [], UNDECIDED) == {
        ("offset", b"g"): b"new",
        ("transaction", b"a"): b"old",
        ("transaction", b"b"): b"new",
        ("transaction", b"c"): b"new",
    }
    assert rebuilt_keyed(known, facts, [Gap(0, 600, 650, True)], UNDECIDED) == {
        ("offset", b"g"): b"new",
        ("transaction", b"c"): b"new",
    }
    assert ("transaction", b"a") in rebuilt_keyed(known, facts, [Gap(1, 600, 650, False)], UNDECIDED), (
        "they are in journal 0"
    )


def test_log_starts_are_as_known_or_where_records_begin() -> None:
    known = pieces(500, row=QueueRow(1, 10, 40))
    facts = JournalFacts(starts={1: 12})
    place = held((8, 40), first=20)
    assert log_start(1, known, JournalFacts(), place, sure=True) == 10
    assert log_start(1, known, facts, place, sure=True) == 12
    assert log_start(1, known, facts, place, sure=False) == 20
    assert log_start(1, known, facts, held(), sure=False) == 12


def test_marks_serial_and_number() -> None:
    found = survey(400, packs=[PackFound(3, 9)])
    marks = rebuilt_marks(pieces(500), found, {0: 900})
    assert marks == {0: JournalMark(0, 900, 900, 3, 7)}
    image = rebuilt_image(pieces(500), found, places(held(), 0), [], {}, [3], 77)
    assert (image.serial, image.packs, image.time_ms, image.clean) == (10, [3], 77, False)
    assert rebuilt_marks(Pieces(), Survey(), {}), "without any it could not be read"


# ------------------------------------------------------------------------------------------------------------- packs


def test_packs_count_if_anybody_can_ask_for_something_in_them() -> None:
    def pack(number: int, start: int, end: int, queue_id: int = 1) -> PackFound:
        return PackFound(number, 0, [Extent(queue_id, start, end, 0, 0, 1, 1, 0)])

    rows = {1: QueueRow(1, 5, 20, segments_from=10)}
    packs = [pack(1, 0, 5), pack(2, 5, 10), pack(3, 10, 20), pack(4, 0, 9, queue_id=2), PackFound(5)]
    found = survey(400, packs=packs)
    whole = places(held((0, 20)), 20, [1, 2, 3, 4])
    assert packs_that_count(found, whole, rows) == ([2], [1, 3, 4, 5])
    assert packs_that_count(found, places(held((0, 7), (10, 20)), 20, [1, 2, 3, 4]), rows)[0] == [2, 5], (
        "it may be there"
    )


# ------------------------------------------------------------------------------------------------------------ losses


def test_nothing_is_lost_when_all_is_held() -> None:
    assert losses(held((0, 40)), QueueRow(1, 0, 40), []) == []
    moved = survey(400)
    moved.moved = {1: 40}
    assert losses(held(), QueueRow(1, 0, 40), [], survey=moved) == [], "a fact in the journal deletes it"


def test_holes_are_lost() -> None:
    assert losses(held((0, 10), (20, 40)), QueueRow(1, 0, 45), []) == [
        "lost: t-0: offsets 10 to 19",
        "lost: t-0: offsets 40 to 44",
    ]


def test_what_a_gap_may_have_cost_is_told() -> None:
    gaps = [Gap(0, 300, 400, True)]
    said = losses(held((8, 40), first=8), QueueRow(1, 8, 40), gaps)
    assert said[0] == "journal 0: positions 300 to 400 are lost"
    assert all(
        any(words in line and "noon" in line for line in said) for words in ("DeleteRecords", "committed offsets")
    )
    assert said[-1] == "t-0: offsets 0 to 7 are deleted or lost"
    facts = JournalFacts(starts={1: 8})
    assert "t-0: offsets 0 to 7 are deleted or lost" not in losses(held((8, 40)), QueueRow(1, 8, 40), gaps, facts=facts)
    assert losses(held((0, 40), torn=True, end=40), QueueRow(1, 0, 40), gaps)[-1].endswith(
        "offsets 40 on, as many as there were"
    )
    assert losses(held(), None, gaps)[-1] == "lost: t-0: offsets 0 on, as many as there were"
    assert not any(
        "committed offsets" in line for line in losses(held((0, 1)), QueueRow(1, 0, 1), [Gap(1, 3, 4, False)])
    )


def test_transactions_that_nobody_ends_are_told() -> None:
    row = QueueRow(1, 0, 40, producers=(ProducerRow(9, 0, 0, (), -1, 30),))
    assert "transaction of producer 9" in losses(held((0, 40)), row, [Gap(0, 300, 400, True)])[-1]
    assert losses(held((0, 40)), row, []) == [], "the coordinator knows of it"


def test_a_loss_is_remembered_beside_those_that_were_accepted() -> None:
    found = find_losses(
        pieces(500), survey(400), places(held((0, 1)), 2), {1: QueueRow(1, 0, 2)}, [SPEC], [], JournalFacts(), ""
    )
    (space, key), value = found.remembered(3, 77)
    assert (space, key) == ("losses", b"repair 77") and b"t-0: offsets 1 to 1" in value
