"""The checkpoint as it is made again from what was found in files, and what is lost by that. Pure.

Where records are, records themselves say. What only a checkpoint holds comes from the pieces of it that can be read,
and from the previous one; the journals tell what has changed since, as far back as they reach (ADR 0016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.checkpoint_repair.checkpoint_pieces import Pieces
from cairnmq.storage.checkpoint_repair.file_survey import PackFound, Survey
from cairnmq.storage.checkpoint_repair.record_places import Known, Places, QueuePlace
from cairnmq.storage.files.format import LOSSES, JournalMark, QueueRow, pack_name
from cairnmq.storage.journal.directories import facts_journal
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.salvage import QueueLoss

Keyed = dict[tuple[str, bytes], bytes]


class JournalFacts(Struct):
    """What the journals say below the split positions: latest values with their positions, and log starts by queue."""

    keyed: dict[tuple[str, bytes], tuple[int, bytes | None]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)


class Losses(Struct):
    """What is not as it was: `queues` are records, `what` all else."""

    what: list[str] = field(default_factory=list)
    queues: list[QueueLoss] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [*self.what, *(f"lost: {queue}" for queue in self.queues)]

    def remembered(self, epoch: int, now_ms: int) -> tuple[tuple[str, bytes], bytes]:
        """As a keyed fact. Its key is no epoch: that of a start which accepted a loss is."""
        queues = [str(queue) for queue in self.queues]
        said = {"time_ms": now_ms, "epoch": epoch, "what": self.what, "queues": queues}
        return (LOSSES, b"repair %d" % now_ms), msgspec.json.encode(said)


def known_before(pieces: Pieces, survey: Survey, specs: Iterable[QueueSpec]) -> Known:
    """For the search for records."""
    compacted = {spec.queue_id: spec.config.compact for spec in specs}
    ends = {queue_id: max(survey.moved.get(queue_id, 0), _end(pieces, queue_id)) for queue_id in compacted}
    splits = {mark.journal: mark.split for mark in pieces.image.marks.values()}
    return Known(compacted, {queue_id for queue_id, is_so in compacted.items() if is_so}, splits, ends)


def _end(pieces: Pieces, queue_id: int) -> int:
    row = pieces.image.queues.get(queue_id)
    return row.end if row is not None else 0


class Gap(Struct, frozen=True):
    """What a journal held from position `start` to `end` is in no file any more. `has_facts`: it is the one with the
    facts of groups and transactions."""

    journal: int
    start: int
    end: int
    has_facts: bool


def find_gaps(pieces: Pieces, survey: Survey, splits: Mapping[int, int]) -> list[Gap]:
    """Between what checkpoint files say and what the journals hold, and where those are damaged."""
    found = []
    numbers = {*pieces.image.marks, *(journal.number for journal in survey.journals)}
    for journal in survey.journals:
        has_facts = journal.number == facts_journal(numbers)
        mark = pieces.image.marks.get(journal.number)
        known = mark.split if mark is not None else 0
        missing = [(start, end) for number, start, end in pieces.missing if number == journal.number]
        for start, end in [*missing, (known, journal.begin)]:
            if start < min(end, journal.begin):
                found.append(Gap(journal.number, start, min(end, journal.begin), has_facts))
        for start, end in journal.holes:
            if known < end and start < splits[journal.number]:
                found.append(Gap(journal.number, max(start, known), end, has_facts))
    return found


def log_start(queue_id: int, pieces: Pieces, facts: JournalFacts, place: QueuePlace, *, sure: bool) -> int:
    """`sure`: nothing is missing of what moved log starts. Else it is where the first record is, if that is later."""
    row = pieces.image.queues.get(queue_id)
    known = max(row.log_start if row is not None else 0, facts.starts.get(queue_id, 0))
    return known if sure or not place.held else max(known, place.first)


def rebuilt_keyed(pieces: Pieces, facts: JournalFacts, gaps: Iterable[Gap], undecided: Collection[str]) -> Keyed:
    """`undecided`: spaces of facts that do harm when they are older than the records. Of these none counts that was
    stored before a gap."""
    sure_from = max((gap.end for gap in gaps if gap.has_facts), default=-1)
    keyed = {key: value for key, value in pieces.image.keyed.items() if sure_from < 0 or key[0] not in undecided}
    for key, (position, value) in facts.keyed.items():
        if value is None:
            keyed.pop(key, None)
        elif position >= sure_from or key[0] not in undecided:
            keyed[key] = value
    return keyed


def rebuilt_marks(pieces: Pieces, survey: Survey, splits: Mapping[int, int]) -> dict[int, JournalMark]:
    marks = dict(pieces.image.marks)
    for journal in survey.journals:
        number, split = journal.number, splits[journal.number]
        old = marks.get(number)
        epoch = journal.epoch_before(split) or (old.epoch if old is not None else 0)
        seed = journal.seed or (old.seed if old is not None else 0)
        marks[number] = JournalMark(number, split, split, epoch, seed)
    return marks or {0: JournalMark(0, 0, 0, 0, 0)}


def rebuilt_image(
    pieces: Pieces,
    survey: Survey,
    places: Places,
    rows: Iterable[QueueRow],
    keyed: Keyed,
    packs: Sequence[int],
    now_ms: int,
) -> CheckpointImage:
    """Its serial is above that of every checkpoint that any file knows of."""
    image = CheckpointImage()
    image.marks = rebuilt_marks(pieces, survey, places.splits)
    image.queues = {row.queue_id: row for row in rows}
    image.keyed = keyed
    image.packs = list(packs)
    image.time_ms = now_ms
    image.serial = max([pieces.image.serial, *(pack.serial for pack in survey.packs)]) + 1
    image.file_number = pieces.number
    return image


def packs_that_count(survey: Survey, places: Places, rows: Mapping[int, QueueRow]) -> tuple[list[int], list[int]]:
    """In order; and those that hold nothing that anybody can ask for. One that cannot be opened counts if something is
    missing that may lie in it."""
    by_number = {pack.number: pack for pack in survey.packs}
    counts = [number for number in places.packs if _is_asked_for(by_number[number], rows)]
    closed = [pack.number for pack in survey.packs if pack.extents is None]
    if any(_missing_in_packs(places.queues[row.queue_id], row) for row in rows.values()):
        counts += closed
    return counts, sorted(set(by_number).difference(counts))


def _is_asked_for(pack: PackFound, rows: Mapping[int, QueueRow]) -> bool:
    for extent in (*(pack.extents or ()), *pack.bad):
        row = rows.get(extent.queue_id)
        if row is not None and row.log_start < extent.end_offset and extent.base_offset < row.packed_end:
            return True
    return False


def _missing_in_packs(place: QueuePlace, row: QueueRow) -> bool:
    return not place.held.covers(row.log_start, row.packed_end)


# ----------------------------------------------------------------------------------------------------------- losses


def find_losses(
    pieces: Pieces,
    survey: Survey,
    places: Places,
    rows: Mapping[int, QueueRow],
    specs: Iterable[QueueSpec],
    gaps: Sequence[Gap],
    facts: JournalFacts,
    when: str,
) -> Losses:
    """`when`: the time of the last checkpoint that is known as a whole; empty, if there is none."""
    losses = Losses(list(_facts_lost(gaps, when)))
    for pack in survey.packs:
        if pack.extents is None and any(_missing_in_packs(places.queues[q], row) for q, row in rows.items()):
            losses.what.append(f"{pack_name(pack.number)} cannot be read and may hold the missing records")
    unsplit = _in_journals(survey, places)
    is_undecided = any(gap.has_facts for gap in gaps)
    for spec in sorted(specs, key=lambda spec: (spec.topic, spec.partition)):
        row, place = rows.get(spec.queue_id), places.queues[spec.queue_id]
        if row is None:
            if gaps and spec.queue_id not in unsplit:
                losses.queues.append(QueueLoss(spec.topic, spec.partition, 0, None))
            continue
        name = f"{spec.topic}-{spec.partition}"
        old = pieces.image.queues.get(spec.queue_id)
        known = max(old.log_start if old is not None else 0, facts.starts.get(spec.queue_id, 0))
        if known < row.log_start:
            losses.what.append(f"{name}: offsets {known} to {row.log_start - 1} are deleted or lost")
        for start, end in place.held.gaps(max(row.log_start, survey.moved.get(spec.queue_id, 0)), row.end):
            losses.queues.append(QueueLoss(spec.topic, spec.partition, start, end))
        if gaps and place.is_torn and row.end <= place.end and spec.queue_id not in unsplit:
            losses.queues.append(QueueLoss(spec.topic, spec.partition, row.end, None))
        losses.what += (
            f"{name}: nobody knows how the transaction of producer {producer.producer_id} ends, which began at offset "
            f"{producer.txn_start}: end it with `kafka-transactions.sh abort`"
            for producer in row.producers
            if is_undecided and producer.txn_start >= 0
        )
    return losses


def _facts_lost(gaps: Sequence[Gap], when: str) -> Iterator[str]:
    for gap in gaps:
        yield f"journal {gap.journal}: positions {gap.start} to {gap.end} are lost"
    if not gaps:
        return
    since = f"since {when}" if when else "before the start of the journals"
    yield f"deletions of records (DeleteRecords, retention) {since} may be undone where the files still exist"
    yield f"idempotent producers that wrote {since}, and have no records left, are forgotten"
    if any(gap.has_facts for gap in gaps):
        yield (
            f"committed offsets and states of groups {since} are lost, unless journals hold later ones"
            + (": older ones are used instead" if when else "")
        )
        yield f"states of transactional ids {since} are lost: they get new producer ids; restart their producers"


def _in_journals(survey: Survey, places: Places) -> set[int]:
    """Queues that have records after the split positions."""
    return {
        queue_id
        for journal in survey.journals
        for queue_id, position in zip(journal.queue_ids, journal.positions, strict=True)
        if position >= places.splits[journal.number]
    }
