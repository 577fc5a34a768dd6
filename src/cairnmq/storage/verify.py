"""`cairn verify`: the invariants of docs/architecture.md as far as they can be seen on disk, while no broker runs.

`check` works on any Disk, the simulator's too; `verify` is for directories and takes their locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from cairnmq.errors import Corrupt, Fault, Locked
from cairnmq.storage.checkpoint import CheckpointImage, checkpoint_name, has_commit, load_checkpoint
from cairnmq.storage.disk import LOCK_NAME, Disk, RealDisk, lock_all
from cairnmq.storage.doubt import doubt_name
from cairnmq.storage.finding import Finding, note
from cairnmq.storage.format import (
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    COMMIT,
    DELETED_SUFFIX,
    DOUBT_FILE,
    IDENTITY_FILE,
    NO_SEGMENTS,
    PACKS,
    QUEUES,
    QueueIdentity,
    QueueRow,
    numbered,
    read_checkpoint_frame,
)
from cairnmq.storage.journal_check import JournalCheck, Run, Unsplit
from cairnmq.storage.pack_check import check_packs, packed_end
from cairnmq.storage.producers import BATCHES_KEPT
from cairnmq.storage.queue_check import QueueCheck
from cairnmq.storage.queue_log import read_identity

JOURNAL_DIRECTORY = "journal"
METADATA_FILE = "meta.db"
OURS = (JOURNAL_DIRECTORY, QUEUES, PACKS, CHECKPOINTS, METADATA_FILE, LOCK_NAME)

Queues = Mapping[int, QueueIdentity]  # what the metadata says exists, by queue id
# Reads the metadata file; a Fault says what is wrong with it. Storage does not know metadata, so it is passed in.
ReadQueues = Callable[[str], Iterable[tuple[int, str, int, str]]]
ReadNextQueue = Callable[[str], int]  # the queue id that the metadata would give out next


def verify(
    dirs: list[str],
    journal_dir: str | None,
    read_queues: ReadQueues | None = None,
    read_next_queue: ReadNextQueue | None = None,
) -> Iterator[str]:
    """A line for each finding, and lines that begin with `note: ` for what a start repairs."""
    for root in dirs:
        for finding in _verify_directory(root.rstrip("/") or "/", journal_dir, read_queues, read_next_queue):
            yield str(finding)


def _verify_directory(
    root: str, journal_dir: str | None, read_queues: ReadQueues | None, read_next_queue: ReadNextQueue | None
) -> Iterator[Finding]:
    if not Path(root).is_dir() or not any((Path(root) / name).exists() for name in OURS):
        yield Finding(root, "no data directory")
        return
    journal_root = journal_dir.rstrip("/") if journal_dir is not None else f"{root}/{JOURNAL_DIRECTORY}"
    has_journals = Path(journal_root).is_dir()
    try:
        held = lock_all([root, journal_root] if has_journals else [root])
    except Locked as error:
        yield Finding(root, str(error))
        return
    except OSError as error:
        held = []
        yield note(root, f"cannot be locked ({error}); what follows holds only if no broker runs on it")
    try:
        journal_disk = RealDisk(journal_root) if has_journals else None
        queues: dict[int, QueueIdentity] | None = None
        next_queue: int | None = None
        if read_queues is not None and (Path(root) / METADATA_FILE).exists():
            try:
                named = read_queues(f"{root}/{METADATA_FILE}")
                queues = {row[0]: QueueIdentity(*row) for row in named}
                next_queue = read_next_queue(f"{root}/{METADATA_FILE}") if read_next_queue is not None else None
            except Fault as error:
                yield Finding(f"{root}/{METADATA_FILE}", str(error))
        elif not (Path(root) / METADATA_FILE).exists():
            yield note(f"{root}/{METADATA_FILE}", "is not there: queues are not compared with topics")
        yield from check(
            RealDisk(root), journal_disk, queues, root=root, journal_root=journal_root, next_queue=next_queue
        )
    finally:
        for one in held:
            one.close()


def check(
    read_disk: Disk,
    journal_disk: Disk | None,
    queues: Queues | None = None,
    *,
    root: str = "data",
    journal_root: str = "journal",
    next_queue: int | None = None,
) -> Iterator[Finding]:
    """Everything below one data directory. `queues`: None when the metadata is not at hand."""
    if read_disk.exists(doubt_name("")):
        yield note(f"{root}/{DOUBT_FILE}", "a sync failed; the next start splits again what is behind the checkpoint")
    yield from _checkpoint(read_disk, root)
    try:
        image = load_checkpoint(read_disk)
    except (Corrupt, msgspec.MsgspecError):
        return  # said above
    yield from _rows(image, queues, root)
    journals: list[JournalCheck] = []
    try:
        numbers = {int(name) for name in journal_disk.list("") if name.isdigit()} if journal_disk is not None else set()
        for number in sorted(numbers | set(image.marks)):
            mark = image.marks.get(number)
            if journal_disk is None:
                if mark is not None and mark.split > 0:
                    yield Finding(journal_root, f"is not there, but the checkpoint knows journal {number}")
                continue
            journal = JournalCheck(journal_disk, number, mark, journal_root)
            journals.append(journal)
            if journal_disk.exists(doubt_name(str(number))):
                doubt = f"{journal_root}/{doubt_name(str(number))}"
                yield note(doubt, "a sync failed; the next start writes again what is behind the checkpoint")
            yield from journal.findings()
        highest = max([0, *image.queues, *(queue_id for journal in journals for queue_id in journal.runs)])
        if next_queue is not None and highest >= next_queue:
            text = f"is older than the records: there are some of queue {highest}, it would give out {next_queue} next"
            yield Finding(f"{root}/{METADATA_FILE}", text)
        yield from _order(journals, image, queues)
        yield from _split_state(journals, image, queues, root)
        yield from _queue_logs(read_disk, journals, image, queues, root)
        yield from check_packs(read_disk, image, queues, root)
    finally:
        for journal in journals:
            journal.close()


# ------------------------------------------------------------------------------------------------------ checkpoint


def _checkpoint(disk: Disk, root: str) -> Iterator[Finding]:
    names = disk.list(CHECKPOINTS)
    numbers = numbered(names, CHECKPOINT_SUFFIX)
    counted = {checkpoint_name(number).rpartition("/")[2] for number in numbers}
    for name in names:
        if name not in counted:
            yield note(f"{root}/{CHECKPOINTS}/{name}", "was never finished; the next checkpoint replaces it")
    for number in numbers[:-1]:
        yield note(f"{root}/{checkpoint_name(number)}", "is older than the one that counts")
    if not numbers:
        yield note(f"{root}/{CHECKPOINTS}", "holds no checkpoint yet")
        return
    name = checkpoint_name(numbers[-1])
    file = disk.open(name)
    view = memoryview(file.read(0, file.size()))
    file.close()
    at, commits = 0, 0
    while (frame := _frame(view, at)) is not None:
        commits += frame[0] == COMMIT
        at = frame[1]
    if not commits:
        yield Finding(f"{root}/{name}", f"holds no whole checkpoint: damaged at {at}; nothing else can be checked")
    elif at < len(view):
        # A publish is synced before the next one begins, so a whole commit behind bad bytes proves damage.
        if has_commit(view, at):
            yield Finding(f"{root}/{name}", f"damaged at {at}: a later checkpoint stands behind")
        else:
            yield note(f"{root}/{name}", f"{len(view) - at} bytes at {at} are a checkpoint that was not finished")


def _frame(view: memoryview, at: int) -> tuple[int, int] | None:
    try:
        frame = read_checkpoint_frame(view, at)
    except msgspec.MsgspecError:
        return None
    return None if frame is None else (frame[0], frame[2])


def _rows(image: CheckpointImage, queues: Queues | None, root: str) -> Iterator[Finding]:
    """What the checkpoint says must at least agree with itself."""
    file = f"{root}/{checkpoint_name(image.file_number)}"
    for mark in image.marks.values():
        if mark.split > mark.high_watermark:
            yield Finding(file, f"journal {mark.journal}: split {mark.split} > high watermark {mark.high_watermark}")
    for row in image.queues.values():
        if not 0 <= row.log_start <= row.end:
            yield Finding(file, f"queue {row.queue_id}: log start {row.log_start}, end {row.end}")
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in zip(row.epochs, row.epochs[1:], strict=False)):
            yield Finding(file, f"queue {row.queue_id}: epoch starts fall: {row.epochs}")
        if any(len(producer.batches) > BATCHES_KEPT for producer in row.producers):
            yield Finding(file, f"queue {row.queue_id}: a producer with more than {BATCHES_KEPT} batches")
        if queues is not None and row.queue_id not in queues:
            yield note(file, f"queue {row.queue_id} is of a deleted topic; the next checkpoint forgets it")


# -------------------------------------------------------------------------------------------------------- journals


def _order(journals: list[JournalCheck], image: CheckpointImage, queues: Queues | None) -> Iterator[Finding]:
    """Offsets of each queue are dense over all journals, and go on where the checkpoint ends."""
    if any(journal.damaged for journal in journals):
        return  # gaps are sure, and say nothing new
    all_runs: dict[int, list[Run]] = {}
    for journal in journals:
        for queue_id, runs in journal.runs.items():
            all_runs.setdefault(queue_id, []).extend(runs)
    roots = {journal.number: f"{journal.root}/{journal.number}" for journal in journals}
    for queue_id, runs in all_runs.items():
        row = image.queues.get(queue_id)
        if queue_id not in queues if queues is not None else row is None:
            continue  # deleted, as far as can be told
        end = row.end if row is not None else 0
        runs.sort(key=lambda run: run.start)
        for before, run in zip(runs, runs[1:], strict=False):
            # The queue may have been in another journal in between, where checkpointed segments are deleted already.
            deleted = len(journals) > 1 and before.end < run.start <= end
            if run.start != before.end and not deleted:
                text = f"queue {queue_id} goes on at offset {run.start} instead of {before.end}"
                yield Finding(roots[run.journal], f"{text} (position {run.position})")
        behind = [place.offset for journal in journals for place in journal.unsplit.get(queue_id, ())]
        end = max([end, *(journal.opened.get(queue_id, 0) for journal in journals)])
        if behind and min(behind) != end:
            text = f"queue {queue_id} goes on at offset {min(behind)} behind the checkpoint, which ends at {end}"
            yield Finding(roots[runs[-1].journal], text)


def _split_state(
    journals: list[JournalCheck], image: CheckpointImage, queues: Queues | None, root: str
) -> Iterator[Finding]:
    """Replaying what the journals still hold below the split position gives what the checkpoint says."""
    file = f"{root}/{checkpoint_name(image.file_number)}"
    ends: dict[int, int] = {}
    for journal in journals:
        for queue_id, end in journal.split_ends.items():
            ends[queue_id] = max(end, ends.get(queue_id, 0))
    for queue_id, end in ends.items():
        row = image.queues.get(queue_id)
        # Of several journals, another one may have held the rest, and deleted it.
        if row is not None and (row.end < end if len(journals) > 1 else row.end != end):
            yield Finding(file, f"queue {queue_id} ends at {row.end}; the journal was split up to offset {end}")
        elif row is None and queues is not None and queue_id in queues:
            yield Finding(file, f"knows nothing of queue {queue_id}, which was split up to offset {end}")
    for journal in journals:
        for queue_id, start in journal.starts.items():
            row = image.queues.get(queue_id)
            if row is not None and row.log_start < start:
                text = f"queue {queue_id} starts at {row.log_start}; records below {start} were deleted"
                yield Finding(file, text)
    if len(journals) == 1:
        for (space, key), value in journals[0].keyed.items():
            if image.keyed.get((space, key)) != value:
                yield Finding(file, f"{space} key {key!r} is not what the journal says")


# ------------------------------------------------------------------------------------------------------ queue logs


def _queue_logs(
    disk: Disk, journals: list[JournalCheck], image: CheckpointImage, queues: Queues | None, root: str
) -> Iterator[Finding]:
    unsplit: dict[int, dict[int, Unsplit]] = {}
    for journal in journals:
        for queue_id, places in journal.unsplit.items():
            unsplit.setdefault(queue_id, {}).update((place.offset, place) for place in places)
    journal_damaged = any(journal.damaged for journal in journals)
    missing = {row.queue_id for row in image.queues.values() if row.end > max(row.log_start, packed_end(row))}
    if queues is not None:
        missing &= set(queues)
    owners: dict[int, str] = {}
    unreadable: list[str] = []
    for name in disk.list(QUEUES):
        directory = f"{QUEUES}/{name}"
        if name.endswith(DELETED_SUFFIX):
            yield note(f"{root}/{directory}", "is of a deleted topic; the next start removes it")
            continue
        identity = read_identity(disk, directory)
        if identity is None:
            unreadable.append(f"{root}/{directory}/{IDENTITY_FILE}")
            continue
        yield from _identity(identity, name, f"{root}/{directory}/{IDENTITY_FILE}", owners, queues)
        owners[identity.queue_id] = name
        missing.discard(identity.queue_id)
        if queues is not None and identity.queue_id not in queues:
            continue
        row = image.queues.get(identity.queue_id, QueueRow(identity.queue_id, 0, 0))
        if row.segments_from == NO_SEGMENTS and row.end:
            yield note(f"{root}/{directory}", "holds nothing that counts; what the checkpoint knows is in packs")
            continue
        row = msgspec.structs.replace(row, log_start=max(row.log_start, packed_end(row)))
        log = QueueCheck(disk, directory, root, row, unsplit.get(identity.queue_id, {}))
        yield from log.findings(journal_damaged)
    for file in unreadable:
        # A directory made after the checkpoint may be there without one; then nothing in it counts.
        if missing:
            yield Finding(file, f"damaged or missing; one of the queues {sorted(missing)[:10]} lies here")
        else:
            yield note(file, "not written to the end; the next start makes the directory anew")
    for queue_id in sorted(missing) if not unreadable else ():
        row = image.queues[queue_id]
        start = max(row.log_start, packed_end(row))
        text = f"no directory holds queue {queue_id}: offsets {start} to {row.end} are missing"
        yield Finding(f"{root}/{QUEUES}", text)


def _identity(
    identity: QueueIdentity, name: str, file: str, owners: dict[int, str], queues: Queues | None
) -> Iterator[Finding]:
    if name != f"{identity.topic}-{identity.partition}":
        yield Finding(file, f"is of {identity.topic}-{identity.partition}, not of {name}")
    if identity.queue_id in owners:
        yield Finding(file, f"queue {identity.queue_id} has a second directory, {owners[identity.queue_id]}")
    if queues is None:
        return
    named = queues.get(identity.queue_id)
    if named is None:
        yield note(file, f"queue {identity.queue_id} is of a deleted topic; the next start removes it")
    elif (named.topic, named.partition, named.topic_id) != (identity.topic, identity.partition, identity.topic_id):
        text = f"queue {identity.queue_id} is {identity.topic}-{identity.partition} with topic id {identity.topic_id}"
        yield Finding(file, f"{text}; the metadata says {named.topic}-{named.partition} with {named.topic_id}")
