"""Opening a data directory: read the checkpoint, scan the journals behind it, cut torn tails, rebuild live state.

Damage and a torn tail look alike at the first bad byte. They are told apart by what later entries claim: an entry
carries the synced end its writer knew, so a bad entry below such an end was on disk once and is damage. A journal with
damage stops there: nothing of it is cut, what lies before is read and split, and no more is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint import CheckpointImage
from cairnmq.storage.damage import Place
from cairnmq.storage.disk import Disk
from cairnmq.storage.doubt import doubt_name, noting_doubt
from cairnmq.storage.fault_point import reach
from cairnmq.storage.format import (
    BATCH,
    ENTRY_SIZE,
    FACT,
    NO_SEGMENTS,
    Keyed,
    StartMoved,
    decode_fact,
    journal_segment,
)
from cairnmq.storage.journal import UNFINISHED, Journal, JournalReader, Segment, write_again
from cairnmq.storage.queue import Queue
from cairnmq.storage.queue_log import QueueSpec
from cairnmq.storage.queue_state import QueueState

PROGRESS_ENTRIES = 10_000


class Scan(Struct):
    """What the scan of one journal found."""

    number: int
    start: int
    end: int
    entries: int = 0
    cut_bytes: int = 0
    epoch: int = 0
    queue_id_max: int = 0
    damage: Place | None = None  # why the journal must not go on: what lies before is good, nothing is cut
    damage_text: str = ""


Progress = Callable[[int, int], None]  # scanned bytes, bytes to scan


def live_queues(
    specs: Iterable[QueueSpec], image: CheckpointImage, journal_of: Callable[[int], int]
) -> dict[int, Queue]:
    """The queues that exist, with their state as of the checkpoint."""
    queues = {}
    for spec in specs:
        row = image.queues.get(spec.queue_id)
        state = QueueState.from_row(row) if row is not None else QueueState()
        segments_from = row.segments_from if row is not None else NO_SEGMENTS
        queue = queues[spec.queue_id] = Queue(spec, state, journal_of(spec.queue_id), segments_from)
        if row is not None and not row.compaction.swaps:
            queue.learn_sums(row.row_sums)
    return queues


def recover_journal(
    disk: Disk,
    number: int,
    image: CheckpointImage,
    queues: dict[int, Queue],
    keyed: dict[tuple[str, bytes], bytes],
    *,
    now_ms: int,
    progress: Progress | None = None,
) -> tuple[Scan, JournalReader]:
    """Scans from the checkpointed split position, cuts what is torn, folds entries into queues and keyed facts."""
    reader = JournalReader(disk, number)
    mark = image.marks.get(number)
    start = mark.split if mark is not None else 0
    scan = Scan(number, start, start, epoch=mark.epoch if mark is not None else 0)
    if not reader.bases:
        if start > 0:
            raise Corrupt(
                f"journal {number} has no segment files, but the checkpoint stands at position {start}: the write disk "
                f"is missing or empty. Mount the right --journal-dir."
            )
        return scan, reader
    if mark is not None:
        reader.seed = mark.seed or None
    if reader.bases[0] > start and reader.claims_behind(start) > start:
        raise Corrupt(
            f"journal {number} begins at {reader.bases[0]}, behind the checkpoint's split position {start}: segments "
            f"or checkpoints are missing"
        )
    physical_end = reader.end()
    if physical_end < start:
        last = reader.bases[-1]
        scan.damage = Place(journal_segment(number, last), physical_end - last)
        scan.damage_text = f"journal {number} ends at {physical_end}, before the checkpoint's split position {start}"
        return scan, reader
    reach("recovery-scan")
    # Of segments that were never synced, a later one may be there without the first.
    readable_end = physical_end if reader.bases[0] <= start else start
    for entry in reader.entries(start, readable_end):
        if entry.epoch < scan.epoch:
            break  # left over from before an earlier cut
        scan.epoch = entry.epoch
        queue_id = entry.queue_id
        if queue_id > scan.queue_id_max:
            scan.queue_id_max = queue_id
        queue = queues.get(queue_id)
        if queue is not None:
            queue.journal = number  # where it has entries behind the checkpoint it stays, whatever the settings say
        if entry.kind == BATCH:
            scan.entries += 1
            if queue is not None:
                state = queue.state
                state.follow(entry, queue.topic, queue.partition, now_ms)
                queue.add_to_tail(
                    entry.base_offset, entry.position + ENTRY_SIZE, len(entry.payload), entry.max_timestamp
                )
                queue.end = queue.visible = state.end
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                if fact.value is None:
                    keyed.pop((fact.space, fact.key), None)
                else:
                    keyed[fact.space, fact.key] = fact.value
            elif isinstance(fact, StartMoved) and queue is not None:
                queue.move_start(fact.offset)
        scan.end = entry.end
        if progress is not None and scan.entries % PROGRESS_ENTRIES == 0:
            progress(scan.end - start, physical_end - start)
    known = mark.high_watermark if mark is not None else 0
    if scan.end < max(physical_end, known):
        claim = max(known, reader.claims_behind(scan.end))
        if claim > scan.end:
            base = max(base for base in reader.bases if base <= scan.end)
            scan.damage = Place(journal_segment(number, base), scan.end - base)
            scan.damage_text = (
                f"journal {number} is damaged at position {scan.end} (file {scan.damage.file} at "
                f"{scan.damage.position}): everything up to {claim} had reached the disk. Restore the file; "
                f"`cairn verify` lists what is affected."
            )
            return scan, reader
        scan.cut_bytes = physical_end - scan.end
    _cut(disk, reader, start, scan.end)
    return scan, reader


def _cut(disk: Disk, reader: JournalReader, start: int, end: int) -> None:
    """Removes what lies behind `end`, latest first, and syncs the rest: after this, written means synced.

    A killed broker leaves unsynced bytes in any segment, not only in the last one.
    """
    reach("recovery-cut")
    directory = str(reader.number)
    for name in disk.list(directory):
        if name.endswith(UNFINISHED):
            disk.remove(f"{directory}/{name}")
    with noting_doubt(disk, directory):
        for base in reversed(reader.bases):
            name = journal_segment(reader.number, base)
            if base >= end:
                disk.remove(name)
                continue
            file = disk.open(name, write=True)
            size = file.size()
            if base + size > end or base == reader.bases[-1]:
                file.truncate(min(size, end - base))  # the last one may have room that it was to grow into
            file.sync()
            file.close()
        disk.sync_dir(directory)
    reader.refresh()
    if disk.exists(doubt_name(directory)):
        _write_again(disk, reader, start, end)


def _write_again(disk: Disk, reader: JournalReader, start: int, end: int) -> None:
    """A sync failed before this start: what lies behind the checkpoint may read well and not be on disk."""
    seed = reader.find_seed()
    for index, base in enumerate(reader.bases):
        size = _size(reader, index, end)
        if base + size > start:
            write_again(disk, reader.number, base, reader.file(base), size, max(base, start), seed).close()
    disk.sync_dir(str(reader.number))
    reader.refresh()
    disk.remove(doubt_name(str(reader.number)))


def reopened(disk: Disk, reader: JournalReader, end: int, *, epoch: int, seed: int, segment_bytes: int) -> Journal:
    """The journal, ready to go on at `end` in a new segment. Where it is damaged, files may lie behind the end."""
    segments = [
        Segment(base, disk.open(journal_segment(reader.number, base)), _size(reader, index, end), synced=True)
        for index, base in enumerate(reader.bases)
        if base < end and reader.end() >= end
    ]
    return Journal(disk, reader.number, epoch=epoch, seed=seed, segments=segments, end=end, segment_bytes=segment_bytes)


def _size(reader: JournalReader, index: int, end: int) -> int:
    following = reader.bases[index + 1] if index + 1 < len(reader.bases) else end
    return min(following, end) - reader.bases[index]
