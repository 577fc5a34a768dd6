"""`cairn verify`: the invariants of docs/architecture.md as far as they can be seen on disk, while no broker runs.

`check` works on any Disk, the simulator's too; `verify` is for directories and takes their locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt, Fault, Locked, Lost, TooNew
from cairnmq.os_errors import text_of
from cairnmq.storage.check.comparison import compare, extent
from cairnmq.storage.check.finding import Finding, note
from cairnmq.storage.check.journal_check import JournalCheck, Run, Unsplit
from cairnmq.storage.check.pack_check import check_packs
from cairnmq.storage.check.queue_check import QueueCheck
from cairnmq.storage.check.replica import Replica
from cairnmq.storage.checkpoint.checkpoint import (
    CheckpointImage,
    checkpoint_name,
    has_commit,
    load_checkpoint,
    previous_name,
    whole_frame_at,
)
from cairnmq.storage.files.checkpoint_frame import is_newer_frame
from cairnmq.storage.files.disk import LOCK_NAME, DirectoryLock, Disk, RealDisk, lock_all
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.files.format import (
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    COMMIT,
    DELETED_SUFFIX,
    IDENTITY_FILE,
    NO_SEGMENTS,
    PACKS,
    PREVIOUS_SUFFIX,
    QUEUES,
    UNSYNCED,
    QueueIdentity,
    QueueRow,
    numbered,
    queue_directory,
)
from cairnmq.storage.journal.directories import find_foreign, find_journals
from cairnmq.storage.queue.producers import BATCHES_KEPT
from cairnmq.storage.recovery.owner import OWNER_FILE, check_owner, is_replica, read_owner
from cairnmq.storage.recovery.salvage import find_begun, find_unfinished
from cairnmq.storage.recovery.stale_checkpoint import signs_of_a_later
from cairnmq.storage.recovery.witness import Seen, older
from cairnmq.storage.segments.queue_log import read_identity
from cairnmq.types import Counters

JOURNAL_DIRECTORY = "journal"
METADATA_FILE = "meta.db"
OURS = (JOURNAL_DIRECTORY, QUEUES, PACKS, CHECKPOINTS, METADATA_FILE, LOCK_NAME)

Queues = Mapping[int, QueueIdentity]  # what the metadata says exists, by queue id
# Reads the metadata file; a Fault says what is wrong with it. Storage does not know metadata, so it is passed in.
ReadQueues = Callable[[str], Iterable[tuple[int, str, int, str]]]
ReadCounters = Callable[[str], Counters]  # what the metadata have handed out
ReadCluster = Callable[[str], str]  # whose they are


def verify(
    dirs: list[str],
    journal_dir: str | None,
    read_queues: ReadQueues | None = None,
    read_counters: ReadCounters | None = None,
    read_cluster: ReadCluster | None = None,
    metadata: str | None = None,
) -> Iterator[str]:
    """A line for each finding, and lines that begin with `note: ` for what a start repairs. Several directories are
    also compared with each other. `metadata`: the file that they share, if they have none of their own."""
    roots = [root.rstrip("/") or "/" for root in dirs]
    readers = Readers(metadata, read_queues, read_counters, read_cluster)
    for root in roots:
        yield from map(str, _verify_directory(root, journal_dir, readers))
    if len(roots) > 1:
        yield from map(str, _compare(roots, readers.shared_queues()))


class Readers(Struct, frozen=True):
    """How metadata are read, each None if it is not at hand. `shared`: the file of a cluster of several brokers."""

    shared: str | None
    queues: ReadQueues | None
    counters: ReadCounters | None
    cluster: ReadCluster | None

    def file(self, root: str) -> str:
        return self.shared if self.shared is not None else f"{root}/{METADATA_FILE}"

    def shared_queues(self) -> set[int] | None:
        """None if that is not known; what is wrong with the file was said for each directory."""
        if self.shared is None or self.queues is None:
            return None
        try:
            return {row[0] for row in self.queues(self.shared)}
        except (Fault, OSError):
            return None


def _compare(roots: list[str], queues: set[int] | None) -> Iterator[Finding]:
    """Each was checked alone before; of one that is not there or cannot be locked that has been said."""
    locks: list[DirectoryLock] = []
    replicas: list[Replica] = []
    try:
        for root in roots:
            journal_root = f"{root}/{JOURNAL_DIRECTORY}"
            if Path(journal_root).is_dir():
                try:
                    locks += lock_all([root, journal_root])
                except Locked:
                    continue
                except OSError:
                    pass  # the disk may be read only
                replicas.append(Replica(root, journal_root, RealDisk(root), RealDisk(journal_root)))
        yield from compare(replicas, queues)
        yield extent(replicas)
    finally:
        for replica in replicas:
            replica.close()
        for one in locks:
            one.close()


def _verify_directory(root: str, journal_dir: str | None, readers: Readers) -> Iterator[Finding]:
    if not Path(root).is_dir() or not any((Path(root) / name).exists() for name in OURS):
        yield Finding(root, "not a CairnMQ data directory")
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
        yield note(root, f"cannot be locked ({text_of(error)}); the results are valid only if no broker runs on it")
    try:
        yield from _verify_locked(root, journal_root, RealDisk(journal_root) if has_journals else None, readers)
    finally:
        for one in held:
            one.close()


def _verify_locked(root: str, journal_root: str, journal_disk: Disk | None, readers: Readers) -> Iterator[Finding]:
    queues: dict[int, QueueIdentity] | None = None
    counters: Counters | None = None
    file = readers.file(root)
    if readers.queues is not None and Path(file).exists():
        try:
            named = readers.queues(file)
            queues = {row[0]: QueueIdentity(*row) for row in named}
            counters = readers.counters(file) if readers.counters is not None else None
            wrong = list(_wrong_journals(root, journal_root, readers, has_topics=bool(queues)))
            yield from wrong
            if wrong and readers.shared is not None:
                return  # another cluster's: held against these metadata, all of it would seem wrong
        except Fault as error:
            yield Finding(file, str(error))
    elif not Path(file).exists():
        yield _without_metadata(root, file, journal_disk)
    yield from check(
        RealDisk(root),
        journal_disk,
        queues,
        root=root,
        journal_root=journal_root,
        counters=counters,
        in_cluster=readers.shared is not None,
    )


def _wrong_journals(root: str, journal_root: str, readers: Readers, *, has_topics: bool) -> Iterator[Finding]:
    """As a start sees it: they are another cluster's, or its own are elsewhere."""
    if readers.cluster is None:
        return
    cluster_id, read_disk = readers.cluster(readers.file(root)), RealDisk(root)
    has_topics = has_topics and readers.shared is None  # of a cluster's topics none need be here
    if not Path(journal_root).is_dir():
        if has_topics and not numbered(read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX):
            yield Finding(journal_root, "is missing, and all records of this data directory are in it")
        return
    try:
        check_owner(
            RealDisk(journal_root),
            read_disk,
            cluster_id,
            where=journal_root,
            has_topics=has_topics,
            accept_loss=False,
        )
    except (Corrupt, Lost) as error:
        yield Finding(journal_root, str(error))


def _without_metadata(root: str, file: str, journal_disk: Disk | None) -> Finding:
    """Nothing is wrong with a directory in which no broker has written yet, nor with one of several brokers that share
    their metadata."""
    disk = RealDisk(root)
    if journal_disk is not None and is_replica(journal_disk) and file == f"{root}/{METADATA_FILE}":
        return note(root, "shares its metadata with other brokers; --metadata names the file, for checks against it")
    journals = find_journals(journal_disk, ()) if journal_disk is not None else []
    if not (journals or disk.list(CHECKPOINTS) or disk.list(PACKS) or disk.list(QUEUES)):
        return note(file, "does not exist yet")
    text = (
        "is missing: without the names of topics no record can be used, and the broker refuses to start. Restore the "
        "newest copy"
    )
    return Finding(file, text)


def check(
    read_disk: Disk,
    journal_disk: Disk | None,
    queues: Queues | None = None,
    *,
    root: str = "data",
    journal_root: str = "journal",
    counters: Counters | None = None,
    in_cluster: bool = False,
) -> Iterator[Finding]:
    """Everything below one data directory. `queues`, `counters`: None when the metadata is not at hand."""
    try:
        owner = read_owner(journal_disk) if journal_disk is not None else None
    except TooNew as error:
        yield Finding(f"{journal_root}/{OWNER_FILE}", str(error))
        return
    if owner is None and journal_disk is not None and journal_disk.exists(OWNER_FILE):
        yield note(f"{journal_root}/{OWNER_FILE}", "is damaged; the next start rewrites it")
    if read_disk.exists(unsynced_name("")):
        yield note(f"{root}/{UNSYNCED}", "a sync failed; the next start splits the journals again from the checkpoint")
    yield from _checkpoint(read_disk, root)
    try:
        image = load_checkpoint(read_disk)
    except (Corrupt, TooNew, msgspec.MsgspecError):
        return  # said above
    yield from _rows(image, queues, root)
    journals: list[JournalCheck] = []
    try:
        numbers = find_journals(journal_disk, image.marks) if journal_disk is not None else sorted(image.marks)
        for manifest in find_unfinished(journal_disk, image) if journal_disk is not None else ():
            stopped = "a start with --accept-loss did not finish; start with --accept-loss again"
            yield Finding(f"{journal_root}/{manifest.journal}", stopped)
        for name in find_begun(journal_disk) if journal_disk is not None else ():
            yield note(
                f"{journal_root}/{name}", "is incomplete, from a start with --accept-loss; the next start removes it"
            )
        for stray in find_foreign(journal_disk, numbers) if journal_disk is not None else ():
            yield note(f"{journal_root}/{stray}", "is not a journal; a start ignores it")
        for number in numbers:
            mark = image.marks.get(number)
            if journal_disk is None:
                if mark is not None and mark.split > 0:
                    yield Finding(journal_root, f"is missing, but the checkpoint contains journal {number}")
                continue
            journals.append(journal := JournalCheck(journal_disk, number, mark, journal_root, in_cluster=in_cluster))
            if journal_disk.exists(unsynced_name(str(number))):
                doubt = f"{journal_root}/{unsynced_name(str(number))}"
                yield note(doubt, "a sync failed; the next start rewrites the journal from the checkpoint")
            yield from journal.findings()
        if counters is not None:
            seen = Seen()
            seen.add_image(image)
            for journal in journals:
                seen.join(journal.seen)
            signs = older(counters, seen.known(journal_disk, read_disk, image.packs))
            if signs is not None:
                yield Finding(f"{root}/{METADATA_FILE}", f"is older than the records: {signs}")
        yield from _order(journals, image, queues)
        yield from _split_state(journals, image, queues, root)
        yield from _queue_logs(read_disk, journals, image, queues, root)
        kept = {}
        for number, sign in signs_of_a_later(read_disk, image, _segmented(image, queues)):
            kept[number] = sign
            yield Finding(f"{root}/{checkpoint_name(image.file_number)}", f"{sign}; {_advice(root)}")
        yield from check_packs(read_disk, image, queues, root, kept)
    finally:
        for journal in journals:
            journal.close()


def _segmented(image: CheckpointImage, queues: Queues | None) -> Iterator[tuple[int, str]]:
    """Queues with segments of their own, as far as their names are known, and their directories."""
    for row in image.queues.values():
        named = queues.get(row.queue_id) if queues is not None else None
        if named is not None and row.needs_segments:
            yield row.queue_id, queue_directory(named.topic, named.partition)


# ------------------------------------------------------------------------------------------------------ checkpoint


def _checkpoint(disk: Disk, root: str) -> Iterator[Finding]:
    names = disk.list(CHECKPOINTS)
    numbers, previous = numbered(names, CHECKPOINT_SUFFIX), numbered(names, PREVIOUS_SUFFIX)
    counted = {path.rpartition("/")[2] for path in (*map(checkpoint_name, numbers), *map(previous_name, previous))}
    for name in names:
        if name not in counted:
            yield note(f"{root}/{CHECKPOINTS}/{name}", "is incomplete; the next checkpoint replaces it")
    for path in (*map(checkpoint_name, numbers[:-1]), *map(previous_name, previous[:-1])):
        yield note(f"{root}/{path}", "is outdated; the next start removes it")
    for number in previous[-1:]:
        view, at, commits = _read_frames(disk, previous_name(number))
        if not commits or (at < len(view) and has_commit(view, at)):
            text = f"damaged at {at}; it is the previous checkpoint, which only `cairn repair` reads"
            yield note(f"{root}/{previous_name(number)}", text)
    if not numbers and previous:
        yield Finding(f"{root}/{CHECKPOINTS}", f"holds no checkpoint, only the previous one; {_advice(root)}")
    elif not numbers:
        yield note(f"{root}/{CHECKPOINTS}", "holds no checkpoint yet")
    for number in numbers[-1:]:
        name = checkpoint_name(number)
        view, at, commits = _read_frames(disk, name)
        if is_newer_frame(view, at):
            yield Finding(f"{root}/{name}", f"written by a newer version of CairnMQ at {at}, or damaged")
        elif not commits:
            text = f"holds no complete checkpoint: damaged at {at}; nothing else can be checked"
            yield Finding(f"{root}/{name}", f"{text}; {_advice(root)}")
        elif at < len(view):
            # A publish is synced before the next one begins, so a whole commit behind bad bytes proves damage.
            if has_commit(view, at):
                yield Finding(f"{root}/{name}", f"damaged at {at}: a later checkpoint follows; {_advice(root)}")
            else:
                yield note(f"{root}/{name}", f"{len(view) - at} bytes at {at} are an incomplete checkpoint")


def _advice(root: str) -> str:
    return f"`cairn repair {root}` rebuilds it"


def _read_frames(disk: Disk, name: str) -> tuple[memoryview, int, int]:
    """The file, the position behind its last whole frame, and how many checkpoints these are."""
    file = disk.open(name)
    view = memoryview(file.read(0, file.size()))
    file.close()
    at, commits = 0, 0
    while (frame := whole_frame_at(view, at)) is not None:
        commits += frame[0] == COMMIT
        at = frame[2]
    return view, at, commits


def _rows(image: CheckpointImage, queues: Queues | None, root: str) -> Iterator[Finding]:
    """What the checkpoint says must at least agree with itself."""
    file = f"{root}/{checkpoint_name(image.file_number)}"
    for mark in image.marks.values():
        if mark.split > mark.replicated_end:
            yield Finding(
                file, f"journal {mark.journal}: split position {mark.split} > replicated end {mark.replicated_end}"
            )
    for row in image.queues.values():
        if not 0 <= row.log_start <= row.end:
            yield Finding(file, f"queue {row.queue_id}: log start {row.log_start}, end {row.end}")
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in zip(row.epochs, row.epochs[1:], strict=False)):
            yield Finding(file, f"queue {row.queue_id}: epoch starts fall: {row.epochs}")
        if any(len(producer.batches) > BATCHES_KEPT for producer in row.producers):
            yield Finding(file, f"queue {row.queue_id}: a producer with more than {BATCHES_KEPT} batches")
        if queues is not None and row.queue_id not in queues:
            yield note(file, f"queue {row.queue_id} belongs to a deleted topic; the next checkpoint drops it")


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
                text = f"queue {queue_id} continues at offset {run.start} instead of {before.end}"
                yield Finding(roots[run.journal], f"{text} (position {run.position})")
        behind = [place.offset for journal in journals for place in journal.unsplit.get(queue_id, ())]
        end = max([end, *(journal.opened.get(queue_id, 0) for journal in journals)])
        if behind and min(behind) != end:
            text = f"queue {queue_id} continues at offset {min(behind)} after the checkpoint, which ends at {end}"
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
            yield Finding(file, f"has no row for queue {queue_id}, which was split up to offset {end}")
    for journal in journals:
        for queue_id, start in journal.starts.items():
            row = image.queues.get(queue_id)
            if row is not None and row.log_start < start:
                text = f"queue {queue_id} starts at {row.log_start}; records below {start} were deleted"
                yield Finding(file, text)
    if len(journals) == 1:
        stored = image.keyed_values()
        for (space, key), value in journals[0].keyed.items():
            if stored.get((space, key)) != value:
                yield Finding(file, f"{space} key {key!r} differs from the journal")


# ------------------------------------------------------------------------------------------------------ queue logs


def _queue_logs(
    disk: Disk, journals: list[JournalCheck], image: CheckpointImage, queues: Queues | None, root: str
) -> Iterator[Finding]:
    unsplit: dict[int, dict[int, Unsplit]] = {}
    for journal in journals:
        for queue_id, places in journal.unsplit.items():
            unsplit.setdefault(queue_id, {}).update((place.offset, place) for place in places)
    journal_damaged = any(journal.damaged for journal in journals)
    missing = {row.queue_id for row in image.queues.values() if row.needs_segments}
    if queues is not None:
        missing &= set(queues)
    owners: dict[int, str] = {}
    unreadable: list[str] = []
    for name in disk.list(QUEUES):
        directory = f"{QUEUES}/{name}"
        if name.endswith(DELETED_SUFFIX):
            yield note(f"{root}/{directory}", "belongs to a deleted topic; the next start removes it")
            continue
        identity = read_identity(disk, directory)
        if identity is None:
            unreadable.append(f"{root}/{directory}/{IDENTITY_FILE}")
            continue
        yield from _identity(identity, name, f"{root}/{directory}/{IDENTITY_FILE}", owners, queues)
        if identity.directory != directory:
            continue  # nobody can tell whose records are in it
        owners[identity.queue_id] = name
        missing.discard(identity.queue_id)
        if queues is not None and identity.queue_id not in queues:
            continue
        row = image.queues.get(identity.queue_id, QueueRow(identity.queue_id, 0, 0))
        if row.segments_from == NO_SEGMENTS and row.end:
            yield note(f"{root}/{directory}", "is not needed; the records are in packs")
            continue
        row = msgspec.structs.replace(row, log_start=max(row.log_start, row.packed_end))
        log = QueueCheck(disk, directory, root, row, unsplit.get(identity.queue_id, {}))
        yield from log.findings(journal_damaged)
    for file in unreadable:
        # A directory made after the checkpoint may be there without one; then nothing in it counts.
        if missing:
            yield Finding(file, f"damaged or missing; one of the queues {sorted(missing)[:10]} lies here")
        else:
            yield note(file, "incomplete; the next start creates the directory again")
    for queue_id in sorted(missing) if not unreadable else ():
        row = image.queues[queue_id]
        start = max(row.log_start, row.packed_end)
        text = f"no directory for queue {queue_id}: offsets {start} to {row.end} are missing"
        yield Finding(f"{root}/{QUEUES}", text)


def _identity(
    identity: QueueIdentity, name: str, file: str, owners: dict[int, str], queues: Queues | None
) -> Iterator[Finding]:
    if name != f"{identity.topic}-{identity.partition}":
        yield Finding(file, f"belongs to {identity.topic}-{identity.partition}, not to {name}")
    if identity.queue_id in owners:
        yield Finding(file, f"queue {identity.queue_id} has a second directory, {owners[identity.queue_id]}")
    if queues is None:
        return
    named = queues.get(identity.queue_id)
    if named is None:
        yield note(file, f"queue {identity.queue_id} belongs to a deleted topic; the next start removes it")
    elif (named.topic, named.partition, named.topic_id) != (identity.topic, identity.partition, identity.topic_id):
        text = f"queue {identity.queue_id} is {identity.topic}-{identity.partition} with topic id {identity.topic_id}"
        yield Finding(file, f"{text}; the metadata says {named.topic}-{named.partition} with {named.topic_id}")
