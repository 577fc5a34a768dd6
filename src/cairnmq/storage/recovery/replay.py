"""Opening a data directory: read the checkpoint, scan the journals behind it, rebuild live state, cut torn tails.

`scan_journal` only reads: whoever opens the directory decides on what it found before `reopened` changes anything.

Damage and a torn tail look alike at the first bad byte. They are told apart by what later entries claim: an entry
carries the synced end its writer knew, so a bad entry below such an end was on disk once and is damage. A journal with
damage stops there: nothing of it is cut, what lies before is read and split, and no more is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from msgspec import Struct

from cairnmq.errors import Corrupt, TooNew
from cairnmq.storage.checkpoint.checkpoint import REPAIR, CheckpointImage
from cairnmq.storage.files.damage import Place
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.failed_sync import noting_unsynced, unsynced_name
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import (
    BATCH,
    NO_SEGMENTS,
    UNFINISHED,
    Leader,
    journal_segment,
)
from cairnmq.storage.journal.directories import read_journal
from cairnmq.storage.journal.journal import Journal, JournalReader, write_again
from cairnmq.storage.journal.replica_note import ReplicaNoteFile
from cairnmq.storage.journal.segment_files import Segment, SegmentFiles
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.journal_fold import EVERYTHING, JournalFold
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Keyeds
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery.journal_search import Behind, every_epoch, look_behind
from cairnmq.storage.recovery.owner import Homes
from cairnmq.storage.recovery.witness import KEY, PRODUCERS_END, SPACE, Known, Seen

PROGRESS_ENTRIES = 10_000


class Replicated(Struct, frozen=True, kw_only=True):
    """What is known of a journal with several replicas before it is read: only what counts is folded, the rest stays
    as it is. An election among members that all restarted may have cut below the stored replicated end: then the
    durable end is all that counts.

    `led`: whether this broker led an epoch, and was not cut in it since. Claims of other leaders about what is synced
    are about their disks (R5), so a tail that such a claim covers may be torn here. `had`: an earlier start found that
    this disk had lost bytes before this position, and cut nothing."""

    had: int = 0
    replicated_end: int
    durable_end: int
    next_queue: int
    led: Callable[[int], bool]


ALONE = Replicated(replicated_end=EVERYTHING, durable_end=EVERYTHING, next_queue=EVERYTHING, led=every_epoch)


class Scan(Struct):
    """What the scan of one journal found."""

    number: int
    start: int
    end: int
    fold: JournalFold  # what of it counts
    entries: int = 0
    cut_bytes: int = 0
    epoch: int = 0
    queue_id_max: int = 0
    producer_id_max: int = -1
    gaps: dict[int, Corrupt] = {}  # queues whose records do not go on where they end
    damage: Place | None = None  # why the journal must not go on: what lies before is good, nothing is cut
    damage_text: str = ""
    had: int = 0  # damaged: this disk has had everything before this position
    behind: Behind | None = None  # what is known from behind the damage
    hole: Place | None = None  # the file ends here, before the checkpoint's split position; nothing is lost by that
    is_old: bool = False  # some of what was scanned is of an earlier version of the format

    @classmethod
    def of_nothing(cls, number: int, queues: dict[int, Queue], keyed: Keyeds) -> Scan:
        """Of a journal that begins while the broker runs."""
        return cls(number, 0, 0, JournalFold(number, queues, keyed, 0))

    @property
    def last_epoch(self) -> int:
        """The highest one in this journal."""
        return self.epoch if self.behind is None else max(self.epoch, self.behind.seen.epoch)


Progress = Callable[[int, int], None]  # scanned bytes, bytes to scan


def live_queues(specs: Iterable[QueueSpec], image: CheckpointImage) -> dict[int, Queue]:
    """The queues that exist, with their state as of the checkpoint."""
    queues = {}
    for spec in specs:
        row = image.queues.get(spec.queue_id)
        state = QueueState.from_row(row) if row is not None else QueueState()
        segments_from = row.segments_from if row is not None else NO_SEGMENTS
        queue = queues[spec.queue_id] = Queue(spec, state, segments_from=segments_from)
        if row is not None and not row.compaction.swaps:
            queue.learn_sums(row.row_sums)
    return queues


def scan_journal(
    disk: Disk,
    number: int,
    image: CheckpointImage,
    queues: dict[int, Queue],
    keyed: Keyeds,
    *,
    now_ms: int,
    progress: Progress | None = None,
    replicated: Replicated = ALONE,
) -> tuple[Scan, JournalReader]:
    """Scans from the checkpointed split position and folds entries into queues and keyed facts, as far as they are
    replicated. Changes no file."""
    mark = image.marks.get(number)
    reader = read_journal(disk, number, mark)
    start = mark.split if mark is not None else 0
    fold = JournalFold(
        number,
        queues,
        keyed,
        start,
        limit=max(replicated.replicated_end, start),
        durable_end=max(replicated.durable_end, start),  # only that is split
        next_queue=replicated.next_queue,
    )
    scan = Scan(number, start, start, fold, epoch=mark.epoch if mark is not None else 0)
    # The replicated end of a checkpoint is this disk's only if there is no other. A replica notes what its disk has.
    noted = replicated.durable_end if replicated is not ALONE else mark.replicated_end if mark is not None else start
    known = max(start, noted, reader.synced_end(), replicated.had)
    if not reader.bases:
        # Other replicas have what a follower lacks behind its checkpoint, and it may have been cut right there.
        if known <= start and (start == 0 or replicated is not ALONE):
            return scan, reader
        why = (
            f"journal {number} has no segment files, but the checkpoint is at position {start}, and everything "
            f"up to {max(start, known)} was synced: the write disk is missing or empty. Mount the right "
            f"--journal-dir."
        )
        return _lost(scan, why, replicated, max(start, known)), reader
    if reader.bases[0] > start and (had := max(known, look_behind(reader, start, replicated.led).synced)) > start:
        why = (
            f"journal {number} starts at {reader.bases[0]}, after the checkpoint's split position {start}: segments "
            f"or checkpoints are missing. {REPAIR}"
        )
        return _lost(scan, why, replicated, had), reader
    reach("recovery-scan")
    physical_end = _fold_entries(scan, reader, now_ms, progress)
    if scan.end < physical_end and reader.is_newer_at(scan.end):
        raise TooNew(
            f"journal {number} at position {scan.end}: an entry was written by a newer version of CairnMQ, or is "
            f"damaged. Start the newer version, or restore the file; nothing was changed."
        )
    _judge(scan, reader, known, replicated.led)
    return scan, reader


def _lost(scan: Scan, why: str, replicated: Replicated, had: int) -> Scan:
    """Nothing of the journal can be used, or the checkpoint before it is gone. Other replicas may have all of it."""
    if replicated is ALONE:
        raise Corrupt(why)
    scan.damage, scan.damage_text, scan.had = Place(journal_segment(scan.number, scan.start), -1), why, had
    return scan


def _fold_entries(scan: Scan, reader: JournalReader, now_ms: int, progress: Progress | None) -> int:
    """Returns where the files end."""
    fold, start, physical_end = scan.fold, scan.start, reader.end()
    # Of segments that were never synced, a later one may be there without the first.
    readable_end = physical_end if reader.bases[0] <= start else start
    counts = True
    for entry in reader.entries(start, readable_end):
        if entry.epoch < scan.epoch:
            break  # left over from before an earlier cut
        scan.epoch = entry.epoch
        if entry.queue_id > scan.queue_id_max:
            scan.queue_id_max = entry.queue_id
        if entry.kind == BATCH:
            scan.entries += 1
            if scan.producer_id_max < entry.producer_id < PRODUCERS_END:
                scan.producer_id_max = entry.producer_id
        counts = counts and fold.takes(entry)
        if counts:
            fold.add(entry, now_ms)
        scan.end = entry.end
        if progress is not None and scan.entries % PROGRESS_ENTRIES == 0:
            progress(scan.end - start, physical_end - start)
    scan.gaps = fold.gaps
    return physical_end


def _judge(scan: Scan, reader: JournalReader, known: int, led: Callable[[int], bool]) -> None:
    """What became of the journal behind the last good entry. `known`: what was synced at least."""
    scan.is_old = _is_old(scan, reader)
    number, physical_end = scan.number, reader.end()
    base = max((base for base in reader.bases if base <= scan.end), default=reader.bases[0])
    place = Place(journal_segment(number, base), min(scan.end, physical_end) - base)
    if scan.end < max(physical_end, known):
        behind = look_behind(reader, scan.end, led)
        known = max(known, behind.synced)
        if known <= scan.end:
            scan.cut_bytes = physical_end - scan.end
            return
        scan.damage, scan.had = place, known
        scan.behind = behind
        what = f"is damaged at position {scan.end}" if physical_end > scan.end else f"lost its end at {physical_end}"
        scan.damage_text = (
            f"journal {number} {what} (file {place.file} at {place.position}): everything up to {known} was "
            f"synced. Nothing more is written to it, and records after the damage are not served (error 56). Restore "
            f"the file, or start with `cairn serve --accept-loss`, which continues after the damage and lists what is "
            f"lost; `cairn verify` shows details."
        )
    elif reader.is_older_than(scan.end):
        raise Corrupt(
            f"journal {number} ends at {physical_end} and is older than the checkpoint, which is at position "
            f"{scan.end}: what was written after that is missing. Restore the newest journals, or start with `cairn "
            f"serve --accept-loss`."
        )
    elif physical_end < scan.end:
        # All of that is in queue logs, so nothing is lost: the next segment begins where it would have.
        scan.hole = place


def _is_old(scan: Scan, reader: JournalReader) -> bool:
    """Version 1 named no leader."""
    scanned = (base for index, base in enumerate(reader.bases) if reader.segment_end(index) > scan.start)
    heads = map(reader.head, scanned)
    return scan.end > scan.start and any(head is not None and head.leader is None for head in heads)


def cut_short(queues: Iterable[Queue], scan: Scan, homes: Homes) -> None:
    """Marks the queues that may have entries behind the damage.

    They belong to the damaged journal until somebody accepts the loss, wherever they would be by now: another journal
    would give offsets again that their records behind the damage have.
    """
    for queue in queues:
        if scan.behind is not None and queue.queue_id in scan.behind.queue_ids:
            queue.journal = scan.number
            # What was deleted does not come back because of the damage.
            queue.move_start(min(scan.behind.starts.get(queue.queue_id, 0), queue.end))
        elsewhere = queue.tail is not None and queue.journal != scan.number
        if not elsewhere and (queue.journal == scan.number or homes.may_hold(scan.number, queue.spec)):
            queue.cut_short, queue.journal = True, scan.number


def known_by(
    image: CheckpointImage, keyed: Keyeds, scans: Iterable[Scan], journal_disk: Disk, read_disk: Disk
) -> Known:
    """What all that was read shows of the metadata's numbers."""
    seen = Seen()
    seen.add_image(image)
    seen.add_fact(keyed.get((SPACE, KEY)))
    for scan in scans:
        seen.add(scan.epoch, scan.queue_id_max, scan.producer_id_max)
        if scan.behind is not None:
            seen.join(scan.behind.seen)
    return seen.known(journal_disk, read_disk, image.packs)


def _cut(disk: Disk, reader: JournalReader, scan: Scan) -> None:
    """Removes what lies behind the end, latest first, and syncs the rest: after this, written means synced. A damaged
    journal stays as it is.

    A killed broker leaves unsynced bytes in any segment, not only in the last one.
    """
    if not reader.bases or scan.damage is not None:
        return
    end = scan.end
    reach("recovery-cut")
    directory = str(reader.number)
    for name in disk.list(directory):
        if name.endswith(UNFINISHED):
            disk.remove(f"{directory}/{name}")
    with noting_unsynced(disk, directory):
        _cut_overhangs(disk, reader)
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
    if disk.exists(unsynced_name(directory)):
        _write_again(disk, reader, scan.start, end)


def _cut_overhangs(disk: Disk, reader: JournalReader) -> None:
    """What a failed write left at the end of a file lies beside the next file, until that is removed. So it goes first,
    and for good: after a power loss in the middle it would be read as the entry that was written in its place."""
    for base, following in pairwise(reader.bases):
        if base + reader.file(base).size() > following:
            file = disk.open(journal_segment(reader.number, base), write=True)
            file.truncate(following - base)
            file.sync()
            file.close()


def _write_again(disk: Disk, reader: JournalReader, start: int, end: int) -> None:
    """A sync failed before this start: what lies behind the checkpoint may read well and not be on disk."""
    seed = reader.find_seed()
    for index, base in enumerate(reader.bases):
        size = _size(reader, index, end)
        if base + size > start:
            write_again(disk, reader.number, base, reader.file(base), size, max(base, start), seed).close()
    disk.sync_dir(str(reader.number))
    reader.refresh()
    disk.remove(unsynced_name(str(reader.number)))


def reopened(
    disk: Disk, reader: JournalReader, scan: Scan, *, epoch: int, node_id: int, seed: int, segment_bytes: int
) -> WritePath:
    """The journal, cut and ready to go on in a new segment. Where it is damaged, files may lie behind the end.

    `seed` is for one that has none yet."""
    path = WritePath(_journal(disk, reader, scan, epoch, Leader(node_id, epoch), seed, segment_bytes))
    path.unsplit_entries = scan.entries
    if scan.damage is not None:
        path.stop(scan.damage_text)
    return path


def followed(
    disk: Disk,
    reader: JournalReader,
    scan: Scan,
    *,
    member: Leader,
    seed: int,
    segment_bytes: int,
    note: ReplicaNoteFile | None = None,
) -> FollowPath:
    """The journal, cut and ready to follow a leader. It leads only when it is promoted, as this `member`. `seed` is for
    one that nobody has written to yet: a follower takes its first leader's."""
    journal, fold = _journal(disk, reader, scan, scan.epoch, member, seed, segment_bytes), scan.fold
    journal.replicated_end = max(fold.position, min(fold.limit, journal.end))
    journal.durable_end = min(fold.durable_end, journal.replicated_end)
    path = FollowPath(journal, fold, fold.batches, note=note, opened_at=scan.start)
    if scan.damage is not None:
        path.refuse(scan.damage_text)
    return path


def _journal(
    disk: Disk, reader: JournalReader, scan: Scan, epoch: int, leader: Leader, seed: int, segment_bytes: int
) -> Journal:
    disk.make_dir(str(scan.number))
    _cut(disk, reader, scan)
    segments = SegmentFiles(disk, scan.number)
    segments += [
        Segment(segments, base, None, _size(reader, index, scan.end), synced=True)
        for index, base in enumerate(reader.bases)
        if base < scan.end
    ]
    journal = Journal(
        disk,
        scan.number,
        epoch=epoch,
        leader=leader,
        seed=reader.find_seed() or seed,
        segments=segments,
        end=scan.end,
        segment_bytes=segment_bytes,
    )
    if scan.end and scan.damage is None:
        journal.synced_file.put(scan.end)
    reader.close()
    return journal


def _size(reader: JournalReader, index: int, end: int) -> int:
    following = reader.bases[index + 1] if index + 1 < len(reader.bases) else end
    return min(following, end) - reader.bases[index]
