"""What journals, segments and packs hold, read from front to back: the input of a repair of the checkpoint.

Every batch is checked. Of those that journals hold too, each is noted with its checksum: there copies can be compared.
Nothing is changed here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from cairnmq.codec.batch import CONTROL_BIT, HEADER, HEADER_SIZE, read_header, stored_crc
from cairnmq.codec.records import iter_batches
from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import BatchPlace, checked_walk
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import (
    BATCH,
    FACT,
    PACK_SUFFIX,
    PACKS,
    QUEUES,
    Entry,
    Extent,
    StartMoved,
    decode_fact,
    numbered,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.packs.pack import PackReader, read_label
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.journal_search import entries_behind
from cairnmq.storage.recovery.witness import Seen
from cairnmq.storage.segments.queue_log import read_identity
from cairnmq.storage.segments.segment import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, SegmentRun, segment_name
from cairnmq.types import Buffer


class Copy(Struct, frozen=True, gc=False):
    """A batch as a queue log or a journal has it."""

    base: int
    end: int
    crc: int


class JournalFound(Struct):
    """Where batches lie in a journal: `positions`, `queue_ids`, `bases`, `ends` and `crcs`, each batch at one index."""

    number: int
    seed: int = 0
    begin: int = 0
    end: int = 0  # after the last entry
    positions: array[int] = field(default_factory=lambda: array("Q"))
    queue_ids: array[int] = field(default_factory=lambda: array("Q"))
    bases: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    crcs: array[int] = field(default_factory=lambda: array("I"))
    holes: list[tuple[int, int]] = []  # positions between entries that do not read back
    epochs: list[tuple[int, int]] = []  # (position, epoch) where each began

    def add(self, entry: Entry) -> None:
        if entry.position > self.end:
            self.holes.append((self.end, entry.position))
        if not self.epochs or entry.epoch > self.epochs[-1][1]:
            self.epochs.append((entry.position, entry.epoch))
        self.end = entry.end
        if entry.kind == BATCH and len(entry.payload) >= HEADER_SIZE:
            self.positions.append(entry.position)
            self.queue_ids.append(entry.queue_id)
            self.bases.append(entry.base_offset)
            self.ends.append(entry.last_offset + 1)
            self.crcs.append(stored_crc(entry.payload))

    def epoch_before(self, position: int) -> int:
        known = [epoch for at, epoch in self.epochs if at < position] or [epoch for _, epoch in self.epochs[:1]]
        return known[-1] if known else 0


class SegmentFound(Struct):
    """`runs`: offsets of sound batches. `swapped`: its files are about to be, or are in part, those of a compacted one.
    `is_torn`: something follows the last sound batch."""

    base: int
    runs: list[tuple[int, int]] = []
    copies: list[Copy] = []
    swapped: bool = False
    is_torn: bool = False

    @property
    def end(self) -> int:
        return self.runs[-1][1] if self.runs else self.base

    def add(self, place: BatchPlace) -> None:
        end = place.last_offset + 1
        if self.runs and self.runs[-1][1] == place.base_offset:
            self.runs[-1] = (self.runs[-1][0], end)
        else:
            self.runs.append((place.base_offset, end))


class PackFound(Struct):
    """`extents`: those that read back; None: the pack cannot be opened. `bad`: those that do not."""

    number: int
    serial: int = 0
    extents: list[Extent] | None = None
    bad: list[Extent] = []
    copies: dict[int, list[Copy]] = {}


class Survey(Struct):
    """All of it. Of each queue: `firsts`: the first offset that journals hold; `moved`: the furthest that they say its
    log start was moved to."""

    journals: list[JournalFound] = []
    firsts: dict[int, int] = {}
    moved: dict[int, int] = {}
    seen: Seen = field(default_factory=Seen)
    segments: dict[int, list[SegmentFound]] = {}
    packs: list[PackFound] = []


def survey_journals(readers: Iterable[JournalReader]) -> Survey:
    survey = Survey()
    for reader in readers:
        begin = reader.bases[0] if reader.bases else reader.synced_end()
        found = JournalFound(reader.number, reader.find_seed(), begin, begin)
        for entry in entries_in_order(reader):
            found.add(entry)
            survey.seen.add_entry(entry)
            if entry.kind == FACT and isinstance(fact := decode_fact(entry.payload), StartMoved):
                survey.moved[entry.queue_id] = max(fact.offset, survey.moved.get(entry.queue_id, 0))
        for queue_id, base in zip(found.queue_ids, found.bases, strict=True):
            survey.firsts[queue_id] = min(base, survey.firsts.get(queue_id, base))
        survey.journals.append(found)
    return survey


def entries_in_order(reader: JournalReader) -> Iterator[Entry]:
    """Also those after damage, but none that is left over from before a cut."""
    epoch = 0
    for entry in entries_behind(reader, 0) if reader.bases else ():
        if entry.epoch >= epoch:
            epoch = entry.epoch
            yield entry


def survey_files(disk: Disk, specs: Iterable[QueueSpec], survey: Survey) -> None:
    """Segments and packs."""
    present = set(disk.list(QUEUES))
    for spec in specs:
        if spec.directory.rpartition("/")[2] in present and is_of(disk, spec):
            first = survey.firsts.get(spec.queue_id)
            survey.segments[spec.queue_id] = list(_segments(disk, spec.directory, first))
    survey.packs = [_pack(disk, number, survey.firsts) for number in numbered(disk.list(PACKS), PACK_SUFFIX)]


def is_of(disk: Disk, spec: QueueSpec) -> bool:
    """One that does not say whose it is goes by its name: those of deleted topics are renamed."""
    identity = read_identity(disk, spec.directory)
    return identity is None or identity.queue_id == spec.queue_id


def _segments(disk: Disk, directory: str, first: int | None) -> Iterator[SegmentFound]:
    names = disk.list(directory)
    half = {
        base
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX)
        for base in numbered(names, suffix + CLEANED)
        if base not in numbered(names, LOG + CLEANED)
    }
    for base in numbered(names, LOG):
        found = SegmentFound(base, swapped=base in half)
        file = disk.open(segment_name(directory, base, LOG))
        end = 0
        for place in sound_places(disk, directory, base, file):
            found.add(place)
            end = place.position + place.size
            if first is not None and place.last_offset >= first:
                crc = stored_crc(file.read(place.position, HEADER_SIZE))
                found.copies.append(Copy(place.base_offset, place.last_offset + 1, crc))
        found.is_torn = end < file.size()
        file.close()
        yield found


def sound_places(disk: Disk, directory: str, base: int, file: File) -> Iterator[BatchPlace]:
    """The batches of a segment that read back, in order; damage is stepped over as far as something leads on."""
    run = SegmentRun(disk, directory, base, file)
    position, expected = 0, base
    try:
        while position < run.end:
            for place, is_sound in checked_walk(file, position, run.end, run.is_whole):
                if not is_sound or place.base_offset != expected:
                    break
                yield place
                position, expected = place.position + place.size, place.last_offset + 1
            going_on = run.behind_damage(position, expected) if position < run.end else None
            if going_on is None:
                return
            position, expected = going_on.position, going_on.base_offset
    except Unreadable:
        return


def _pack(disk: Disk, number: int, firsts: Mapping[int, int]) -> PackFound:
    label = read_label(disk, number)
    found = PackFound(number, label.serial if label is not None else 0)
    try:
        pack = PackReader.open(disk, number)
        extents = list(pack)
    except (Corrupt, OSError):
        return found
    found.extents = []
    for extent in extents:
        try:
            data = pack.data(extent)
        except (Corrupt, Unreadable):
            found.bad.append(extent)
            continue
        found.extents.append(extent)
        first = firsts.get(extent.queue_id)
        if first is not None and first < extent.end_offset:
            headers = [read_header(batch) for batch in iter_batches(data)]
            copies = (Copy(h.base_offset, h.last_offset + 1, h.crc) for h in headers if h.last_offset >= first)
            found.copies.setdefault(extent.queue_id, []).extend(copies)
    pack.close()
    return found


class Stored(Struct, frozen=True, gc=False):
    """A batch for the fold: all of a control batch, of others the header. `date_ms`: when its file was last written."""

    data: Buffer
    date_ms: int


def stored_batches(
    disk: Disk, spec: QueueSpec, packs: Iterable[tuple[PackReader, Extent]], segments: Iterable[int]
) -> Iterator[Stored]:
    """What a queue has in these extents and then in these segments."""
    for pack, extent in packs:
        try:
            data = pack.data(extent)
        except (Corrupt, Unreadable):
            continue
        date_ms = pack.file.modified_ms()
        for batch in iter_batches(data):
            yield Stored(batch, date_ms)
    for base in segments:
        file = disk.open(segment_name(spec.directory, base, LOG))
        date_ms = file.modified_ms()
        for place in sound_places(disk, spec.directory, base, file):
            data = file.read(place.position, HEADER_SIZE)
            if HEADER.unpack_from(data)[5] & CONTROL_BIT:
                data = file.read(place.position, place.size)
            yield Stored(data, date_ms)
        file.close()
