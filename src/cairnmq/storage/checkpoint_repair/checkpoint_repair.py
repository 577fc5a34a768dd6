"""`cairn repair`: a checkpoint that is damaged, gone or an old copy is made again from segments, packs and journals.

`find_problem` and `make_plan` only read; `carry_out` changes files. What is decided is decided in record_places.py,
rebuilt_row.py and rebuilt_checkpoint.py. The new checkpoint takes the old one's name with the last step, so a repair
that was stopped before is done again, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from cairnmq.errors import Corrupt, Outdated
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, load_checkpoint, write_checkpoint
from cairnmq.storage.checkpoint_repair.checkpoint_pieces import Pieces, read_pieces
from cairnmq.storage.checkpoint_repair.file_survey import (
    Survey,
    entries_in_order,
    stored_batches,
    survey_files,
    survey_journals,
)
from cairnmq.storage.checkpoint_repair.rebuilt_checkpoint import (
    HomeOf,
    JournalFacts,
    Losses,
    StoredFact,
    find_gaps,
    find_losses,
    known_before,
    log_start,
    packs_that_count,
    rebuilt_image,
    rebuilt_keyed,
)
from cairnmq.storage.checkpoint_repair.rebuilt_row import fold, rebuilt_row
from cairnmq.storage.checkpoint_repair.record_places import NO_OFFSET, Places, find_places, lost_segments
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.files.format import (
    CHECKPOINTS,
    FACT,
    NO_SEGMENTS,
    PACKS,
    PREVIOUS_SUFFIX,
    QUEUES,
    UNSYNCED,
    Aborted,
    Extent,
    Keyed,
    KeyedRow,
    QueueRow,
    StartMoved,
    decode_fact,
    numbered,
    pack_name,
)
from cairnmq.storage.files.set_aside import LOST, put_aside
from cairnmq.storage.journal.directories import find_journals
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.journal_search import look_behind
from cairnmq.storage.recovery.stale_checkpoint import refuse_stale_checkpoint
from cairnmq.storage.recovery.witness import older
from cairnmq.storage.segments.segment import SUFFIXES, segment_name
from cairnmq.storage.segments.txn_index import sound_rows
from cairnmq.types import Counters, SlotPlace

SYNCED_AT_ONCE = 256  # files
ASIDE = "repair-"


def at_home(space: str, key: bytes) -> SlotPlace:
    """Facts of the node itself."""
    return SlotPlace(0, 0)


class Metadata(Struct, frozen=True):
    """What the metadata say."""

    specs: Sequence[QueueSpec]
    counters: Counters
    undecided: Collection[str] = ()  # spaces of facts that do harm when they are older than the records
    expiration_ms: int = 86_400_000  # of producers
    home_of: HomeOf = at_home  # of keyed facts


class Plan(Struct):
    """What a repair will do. Names are those on the read disk."""

    problem: str
    image: CheckpointImage
    losses: Losses
    damaged: str  # the checkpoint file that is replaced; empty: it is gone
    used: list[str]  # checkpoint files of which something is used
    aside: list[str]  # what does not count
    synced: list[str]  # directories of files that count, and may not be on disk yet
    place: str  # where that goes which does not count

    def lines(self) -> Iterator[str]:
        image = self.image
        yield f"problem: {self.problem}"
        yield f"plan: rebuild the checkpoint for {len(image.queues)} partitions from their segments and {_packs(image)}"
        for mark in image.marks.values():
            yield f"plan: read journal {mark.journal} from position {mark.split} at the next start"
        if self.used:
            yield f"plan: take what the files do not say themselves from {' and '.join(self.used)}"
        if self.damaged:
            yield f"plan: keep the old {self.damaged} in {self.place}"
        yield from (f"plan: move {name} to {self.place}: its records are in other files" for name in self.aside)
        yield from self.losses.lines or ["nothing is lost"]


def _packs(image: CheckpointImage) -> str:
    return "1 pack" if len(image.packs) == 1 else f"{len(image.packs)} packs"


def find_problem(journal_disk: Disk, read_disk: Disk, specs: Iterable[QueueSpec]) -> str | None:
    """Why no broker starts with this checkpoint; None: it is well, or it is not the checkpoint."""
    try:
        image = load_checkpoint(read_disk)
        if image.file_number:
            refuse_stale_checkpoint(read_disk, image, specs)
    except Corrupt as error:
        return str(error)
    if not image.file_number and numbered(read_disk.list(CHECKPOINTS), PREVIOUS_SUFFIX):
        return "the checkpoint is missing; only the previous one exists"
    if not image.file_number and (read_disk.list(QUEUES) or read_disk.list(PACKS)):
        return "the checkpoint is missing"
    for number in find_journals(journal_disk, ()):
        reader = JournalReader(journal_disk, number)
        mark = image.marks.get(number)
        split = mark.split if mark is not None else 0
        known = mark.replicated_end if mark is not None else 0
        begins_later = bool(reader.bases) and reader.bases[0] > split
        if begins_later and max(known, look_behind(reader, split).synced) > split:
            what = f"stands at position {split}" if image.file_number else "is not there"
            return f"journal {number} begins at position {reader.bases[0]}, and the checkpoint {what}"
        reader.close()
    return None


def make_plan(
    journal_disk: Disk,
    read_disk: Disk,
    metadata: Metadata,
    problem: str,
    *,
    now_ms: int,
    text_of: Callable[[int], str],
) -> Plan:
    """Reads everything. Corrupt says why there is nothing that a repair could do. `text_of`: a time as text."""
    _refuse_unsynced(read_disk)
    readers = [JournalReader(journal_disk, number) for number in find_journals(journal_disk, ())]
    try:
        pieces = read_pieces(read_disk, {(reader.number, seed) for reader in readers if (seed := reader.find_seed())})
        for reader in readers:
            mark = pieces.image.marks.get(reader.number)
            if mark is not None and not reader.find_seed():
                reader.seed = mark.seed
        if not (pieces.read or read_disk.list(QUEUES) or read_disk.list(PACKS)):
            raise Corrupt(
                "the read disk holds no queue logs, no packs and nothing of a checkpoint: there is nothing to rebuild "
                "it from. Is a disk not mounted? `cairn serve --accept-loss` starts with the records in the journals; "
                "nothing was changed."
            )
        survey = survey_journals(readers)
        epoch = _refuse_older(journal_disk, read_disk, metadata.counters, survey, pieces)
        survey_files(read_disk, metadata.specs, survey)
        places = find_places(survey, known_before(pieces, survey, metadata.specs))
        facts = _facts(readers, places.splits)
    finally:
        for reader in readers:
            reader.close()
    gaps = find_gaps(pieces, survey, places.splits)
    rows = {
        row.queue_id: row
        for row in _Rows(read_disk, pieces, survey, places, facts, metadata, now_ms, epoch, sure=not gaps).made()
    }
    packs, unused = packs_that_count(survey, places, rows)
    when = text_of(pieces.whole_ms) if pieces.whole_ms else ""
    losses = find_losses(pieces, survey, places, rows, metadata.specs, gaps, facts, when)
    keyed = rebuilt_keyed(pieces, facts, gaps, metadata.undecided, metadata.home_of)
    if losses.lines:
        remembered = losses.remembered(epoch, now_ms)
        keyed[remembered.space, remembered.key] = remembered
    image = rebuilt_image(pieces, survey, places, rows.values(), keyed, packs, now_ms)
    aside = [*map(pack_name, unused), *_foreign(read_disk, metadata.specs, survey, places)]
    synced = [spec.directory for spec in metadata.specs if places.queues[spec.queue_id].segments]
    return Plan(problem, image, losses, pieces.newest, pieces.read, aside, synced, _next_place(read_disk))


def _refuse_unsynced(read_disk: Disk) -> None:
    if read_disk.exists(unsynced_name("")):
        raise Corrupt(
            f"the file {UNSYNCED} says that a sync failed: what reads well may not be on disk. Unmount the disk or "
            f"restart the machine, remove the file, and run `cairn repair` again; nothing was changed."
        )


def _refuse_older(journal_disk: Disk, read_disk: Disk, counters: Counters, survey: Survey, pieces: Pieces) -> int:
    """Returns the highest epoch that was in use."""
    survey.seen.add_image(pieces.image)
    known = survey.seen.known(journal_disk, read_disk, ())
    signs = older(counters, known)
    if signs is not None:
        raise Outdated(
            f"the metadata is older than the records: {signs}. Restore the newest meta.db first: without it the topics "
            f"are unknown. Nothing was changed."
        )
    return max(counters.epoch, known.floor.epoch)


def _facts(readers: Iterable[JournalReader], splits: Mapping[int, int]) -> JournalFacts:
    facts = JournalFacts()
    for reader in readers:
        for entry in entries_in_order(reader):
            if entry.kind != FACT or entry.position >= splits[reader.number]:
                continue
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                row = KeyedRow(entry.queue_id, fact.space, fact.key, fact.value)
                known = facts.keyed.get((fact.space, fact.key))
                # of version 1 all are in journal 0, whose slots may be in others since: the later epoch counts
                if known is None or known.epoch <= entry.epoch:
                    facts.keyed[fact.space, fact.key] = StoredFact(reader.number, entry.position, entry.epoch, row)
            elif isinstance(fact, StartMoved):
                facts.starts[entry.queue_id] = max(fact.offset, facts.starts.get(entry.queue_id, 0))
    return facts


class _Rows:
    """Reads the records of each queue once more, in order."""

    def __init__(
        self,
        disk: Disk,
        pieces: Pieces,
        survey: Survey,
        places: Places,
        facts: JournalFacts,
        metadata: Metadata,
        now_ms: int,
        epoch: int,
        *,
        sure: bool,
    ) -> None:
        self._disk = disk
        self._pieces = pieces
        self._places = places
        self._facts = facts
        self._metadata = metadata
        self._now_ms = now_ms
        self._epoch = epoch
        self._sure = sure
        self._extents: dict[int, list[tuple[int, Extent]]] = {}
        chosen = set(places.packs)
        for pack in survey.packs:
            for extent in (pack.extents or ()) if pack.number in chosen else ():
                self._extents.setdefault(extent.queue_id, []).append((pack.number, extent))
        self._packs = {number: PackReader.open(disk, number) for number in places.packs}

    def made(self) -> Iterator[QueueRow]:
        for spec in self._metadata.specs:
            row = self._row(spec)
            if row is not None:
                yield row
        for pack in self._packs.values():
            pack.close()

    def _row(self, spec: QueueSpec) -> QueueRow | None:
        queue_id = spec.queue_id
        place, end, old = (
            self._places.queues[queue_id],
            self._places.ends[queue_id],
            self._pieces.image.queues.get(queue_id),
        )
        start = log_start(queue_id, self._pieces, self._facts, place, sure=self._sure)
        end = max(start, end)
        if not end and old is None and not place.held:
            return None
        limit = place.packed_end(end)
        held = sorted(self._extents.get(queue_id, ()), key=lambda pair: pair[1].base_offset)
        extents = [(self._packs[number], extent) for number, extent in held if extent.base_offset < limit]
        state = fold(stored_batches(self._disk, spec, extents, place.segments), end, self._epoch)
        stored = {base: _aborted_rows(self._disk, spec, base, limit) for base, limit in place.bounds(end)}
        return rebuilt_row(
            queue_id,
            state,
            old,
            place,
            log_start=start,
            end=end,
            packed_bytes=sum(extent.size for _, extent in extents) if place.segments_from == NO_SEGMENTS else 0,
            compacted=spec.config.compact,
            stored_aborted=stored,
            now_ms=self._now_ms,
            expiration_ms=self._metadata.expiration_ms,
        )


def _aborted_rows(disk: Disk, spec: QueueSpec, base: int, limit: int) -> list[Aborted]:
    try:
        return sound_rows(disk, spec.directory, base, limit)
    except Unreadable:
        return []


def _foreign(disk: Disk, specs: Iterable[QueueSpec], survey: Survey, places: Places) -> Iterator[str]:
    """Segments that do not count. A start would take some for a part of the log, and remove others."""
    for spec in specs:
        segments, place = survey.segments.get(spec.queue_id), places.queues[spec.queue_id]
        if not segments:
            continue
        if not place.segments:
            if lost_segments(place.held, segments, survey.firsts.get(spec.queue_id, NO_OFFSET)):
                yield spec.directory
            continue
        names = [segment_name(spec.directory, base, suffix) for base in place.stray for suffix in SUFFIXES]
        yield from (name for name in names if disk.exists(name))


def _next_place(disk: Disk) -> str:
    used = [name.removeprefix(ASIDE) for name in disk.list(LOST) if name.startswith(ASIDE)]
    return f"{LOST}/{ASIDE}{max((int(number) for number in used if number.isdecimal()), default=0) + 1}"


# --------------------------------------------------------------------------------------------------------- doing it


def carry_out(read_disk: Disk, plan: Plan) -> None:
    """The last step makes it count. Everything that it relies on is on disk by then."""
    _sync(read_disk, plan)
    place = plan.place.removeprefix(f"{LOST}/")
    if plan.damaged:
        file = read_disk.open(plan.damaged)
        data = b""
        with suppress(OSError):  # what the device does not give back cannot be kept
            data = file.read(0, file.size())
        file.close()
        read_disk.make_dir(f"{plan.place}/{CHECKPOINTS}")
        read_disk.replace(f"{plan.place}/{plan.damaged}", data)
        for directory in (plan.place, LOST, ""):
            read_disk.sync_dir(directory)
    put_aside(read_disk, plan.aside, place)
    write_checkpoint(read_disk, plan.image, plan.image.file_number).close()


def _sync(disk: Disk, plan: Plan) -> None:
    """A broker that was killed may have synced nothing since its last checkpoint."""
    names = [pack_name(number) for number in plan.image.packs]
    for directory in plan.synced:
        names += (f"{directory}/{name}" for name in disk.list(directory))
    names = [name for name in names if disk.exists(name)]
    directories = [*plan.synced, QUEUES, PACKS, ""]
    rest = iter(names)
    while some := list(islice(rest, SYNCED_AT_ONCE)):
        files: list[File] = [disk.open(name, write=True) for name in some]
        disk.sync_files(files)
        for file in files:
            file.close()
    disk.sync_files([], [directory for directory in directories if not directory or disk.list(directory)])
