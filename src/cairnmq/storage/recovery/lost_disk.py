"""A disk that is gone, or not mounted: what that loses, and how to go on with the rest when a person accepts it.

Each disk knows enough of the other to notice, and both know whether the metadata are older than they are. `find_loss`
and `find_metadata_loss` only read. `accept` turns what is left into a directory that a normal start recovers: whatever
cannot be used is moved to `lost/EPOCH`, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import REPAIR, CheckpointImage, CheckpointLog, load_checkpoint
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import (
    BATCH,
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    DELETED_SUFFIX,
    FACT,
    LOSSES,
    PACKS,
    QUEUES,
    CheckpointRows,
    JournalMark,
    Keyed,
    QueueRow,
    StartMoved,
    decode_fact,
    journal_segment,
    numbered,
    segment_entry,
)
from cairnmq.storage.files.set_aside import put_aside
from cairnmq.storage.journal.directories import facts_journal, find_journals, read_journal
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.journal_search import entries_behind, look_behind
from cairnmq.storage.recovery.owner import Homes
from cairnmq.storage.recovery.salvage import Manifest, QueueLoss, Remains, find_unfinished, place, rebuild
from cairnmq.storage.recovery.stale_checkpoint import refuse_stale_checkpoint
from cairnmq.storage.recovery.witness import Known, Seen, older
from cairnmq.storage.segments.queue_log import read_identity
from cairnmq.storage.segments.segment import LOG
from cairnmq.types import Counters

NAMED_MAX = 20  # queues in a line


class Loss(Struct):
    """Everything that is gone, and what is needed to go on."""

    what: list[str]
    queues: list[QueueLoss]
    image: CheckpointImage
    read_disk_gone: bool
    restarts: list[JournalMark]  # journals that go on at `split` in a new file; what they hold is moved away
    jumps: list[JournalMark]  # journals that are read from `split` on, where their first file begins
    rows: list[QueueRow]  # queues that begin where their records begin
    known: Known = Known()  # what must not be handed out again
    is_outdated: bool = False  # the metadata are older than the records
    aside: list[str] = []  # directories of queues that no topic claims
    salvages: list[Remains] = []  # journals that are made anew of what can be read of them
    unfinished: list[Manifest] = []  # the same, begun by a start that was stopped
    repairable: bool = False  # a repair of the checkpoint would lose less

    def text(self) -> str:
        lines = [*self.what, *(f"lost: {queue}" for queue in self.queues)]
        if self.unfinished:
            return "\n  ".join(["a start with --accept-loss did not finish; start with --accept-loss again", *lines])
        return "\n  ".join(
            [
                "data is missing; nothing was changed. Is a disk not mounted, or --journal-dir wrong?",
                *lines,
                *([f"{REPAIR}: try that first, because it loses less"] if self.repairable else []),
                "`cairn serve --accept-loss` starts with the rest and moves unusable files to the directory lost/",
            ]
        )


def find_loss(
    journal_disk: Disk, read_disk: Disk, specs: Iterable[QueueSpec], metadata: Counters | None = None
) -> Loss | None:
    """What two disks that contradict each other, or metadata that are older than they are, have lost; None if all fits
    together."""
    try:
        image, gone = load_checkpoint(read_disk), ""
        if not image.file_number:
            gone = "the read disk holds no checkpoint, but the journals continue after one"
    except Corrupt as error:
        image, gone = CheckpointImage(), str(error)
    known = sorted(specs, key=lambda spec: (spec.topic, spec.partition))
    if not gone:
        refuse_stale_checkpoint(read_disk, image, known)  # what it says of losses would be as old
    readers = _readers(journal_disk, image, known)
    try:
        homes = Homes(journal_disk)
        seen, ids = Seen(), set(image.queues)
        seen.add_image(image)
        for reader in readers.values():
            for entry in entries_behind(reader, 0):
                seen.add_entry(entry)
                if entry.kind == BATCH:
                    ids.add(entry.queue_id)
        loss = Loss([], [], image, bool(gone), [], [], [], seen.known(journal_disk, read_disk, image.packs))
        if image.file_number or not _is_corrupt(read_disk):
            loss.unfinished = find_unfinished(journal_disk, image)
        if loss.unfinished:
            loss.what, loss.queues = loss.unfinished[0].what, loss.unfinished[0].queues
            loss.read_disk_gone = False
            return loss
        signs = older(metadata, loss.known) if metadata is not None else None
        loss.is_outdated = signs is not None
        firsts: dict[int, int] = {}
        for number, reader in readers.items():
            _look_at(loss, number, reader, firsts, has_facts=number == facts_journal(readers))
        if gone and not (loss.jumps or _is_corrupt(read_disk)):
            loss.read_disk_gone, gone = False, ""  # every journal begins at 0: nothing is missing
        if gone:
            loss.what.insert(
                0, f"{gone.rstrip('.')}. Without a checkpoint it is unknown which queue logs and packs are valid"
            )
            loss.what.append(
                "committed offsets, and states of groups, producers and transactions, are lost unless "
                "the journals hold them"
            )
        elif not (loss.jumps or loss.restarts or loss.is_outdated):
            _look_at_damage(loss, known, readers, homes)
            return loss if loss.salvages else None
        has_files = any(read_disk.list(name) for name in (QUEUES, PACKS, CHECKPOINTS))
        loss.repairable = bool(gone or loss.jumps) and has_files and not loss.is_outdated
        if signs is not None:
            loss.what.append(f"the metadata is older than the records: {signs}")
            _look_at_unclaimed(loss, read_disk, {spec.queue_id for spec in known}, ids)
        _look_at_queues(loss, known, firsts, homes)
        if loss.is_outdated:
            _look_at_logs(loss, known, read_disk)
        _mark_all(loss, readers)
    finally:
        for reader in readers.values():
            reader.close()
    return loss


def _look_at_damage(loss: Loss, specs: list[QueueSpec], readers: dict[int, JournalReader], homes: Homes) -> None:
    """Journals that are damaged somewhere behind the checkpoint."""
    ids = {spec.queue_id for spec in specs}
    facts = "committed offsets, states of groups and transactions, "
    for number, reader in readers.items():
        mark = loss.image.marks.get(number) or JournalMark(number, 0, 0, 0, 0)
        remains = Remains(reader, mark, loss.image.queues, ids)
        for _ in remains.walk():
            pass
        if not remains.stretches:
            continue
        loss.salvages.append(remains)
        for stretch in remains.stretches[:NAMED_MAX]:
            file, at = remains.file_of(stretch.start)
            size = stretch.end - stretch.start
            loss.what.append(f"journal {number}: {size} bytes at {at} of {number}/{file} are damaged")
        if len(remains.stretches) > NAMED_MAX:
            loss.what.append(f"journal {number}: and {len(remains.stretches) - NAMED_MAX} more such places")
        if remains.unknown_bytes:
            loss.what.append(
                f"journal {number}: the contents of {remains.unknown_bytes} bytes of that are lost, also facts: "
                f"{facts if number == facts_journal(readers) else ''}deletions of records"
            )
        for spec in specs:
            queue_id = spec.queue_id
            lost = [QueueLoss(spec.topic, spec.partition, *gap) for gap in remains.lost.get(queue_id, ())]
            at_home = queue_id in remains.last or homes.may_hold(number, spec)
            if at_home and remains.end_is_uncertain(queue_id):
                row = loss.image.queues.get(queue_id)
                end = remains.ends.get(queue_id, row.end if row is not None else 0)
                lost.append(QueueLoss(spec.topic, spec.partition, end, None))
            loss.queues += lost
            loss.what += (
                f"{spec.topic}-{spec.partition}: the end of the transaction that producer {producer_id} began at "
                f"offset {start} may be lost"
                for (opened, producer_id), start in remains.open.items()
                if opened == queue_id and remains.end_is_uncertain(queue_id)
            )


def find_metadata_loss(journal_disk: Disk, read_disk: Disk, missing: str = "the metadata is missing") -> Loss | None:
    """For a start that finds no metadata: None if there is nothing that it could be missing for."""
    try:
        image = load_checkpoint(read_disk)
    except Corrupt:
        image = CheckpointImage()
    readers = _readers(journal_disk, image)
    if not any(reader.bases for reader in readers.values()) and not image.file_number:
        return None
    what = [
        f"{missing}: names, partitions and settings of all topics are lost, so no record can be used. Restore the "
        f"newest meta.db, with its meta.db-wal if there is one"
    ]
    loss = Loss(what, [], CheckpointImage(), True, [], [], [])
    seen = Seen()
    seen.add_image(image)
    for number, reader in readers.items():
        records = size = 0
        ids: set[int] = set()
        mark = image.marks.get(number)
        end = max(reader.end(), mark.split if mark is not None else 0)
        for entry in entries_behind(reader, 0):
            seen.add_entry(entry)
            if entry.kind == BATCH:
                ids.add(entry.queue_id)
                records += entry.count
                size += len(entry.payload)
        what.append(f"journal {number} holds {records} records of {len(ids)} partitions, {size} bytes")
        loss.restarts.append(JournalMark(number, end, end, seen.epoch, reader.find_seed()))
        reader.close()
    loss.known = seen.known(journal_disk, read_disk, image.packs)
    return loss


def _readers(journal_disk: Disk, image: CheckpointImage, specs: Iterable[QueueSpec] = ()) -> dict[int, JournalReader]:
    numbers = find_journals(journal_disk, {*image.marks, *(spec.journal for spec in specs)})
    return {number: read_journal(journal_disk, number, image.marks.get(number)) for number in numbers}


def _is_corrupt(read_disk: Disk) -> bool:
    """The checkpoint is there and cannot be read, so it must be moved away even if nothing else is missing."""
    return bool(numbered(read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX))


def _look_at(loss: Loss, number: int, reader: JournalReader, firsts: dict[int, int], *, has_facts: bool) -> None:
    """Adds what is missing of one journal, and where the queues begin in what is left of it."""
    mark = loss.image.marks.get(number) or JournalMark(number, 0, 0, 0, 0)
    synced = max(mark.replicated_end, reader.synced_end())
    is_old = reader.is_older_than(mark.split)
    if is_old or not reader.bases:
        if max(mark.split, synced) > 0:
            known = max(0, synced - mark.split)
            has = f"is an older copy and ends at {reader.end()}" if is_old else "has no files"
            loss.what.append(
                f"journal {number} {has}, but the checkpoint is at position {mark.split}: everything written "
                f"after it is lost, at least {known} bytes"
                + (", committed offsets and states of groups and transactions among it" if has_facts else "")
                + ("; the last shutdown was clean, so perhaps nothing was written" if loss.image.clean else "")
            )
            loss.restarts.append(JournalMark(number, mark.split, mark.split, mark.epoch, mark.seed))
        return
    first = reader.bases[0]
    if first <= mark.split or max(synced, look_behind(reader, mark.split).synced) <= mark.split:
        if loss.read_disk_gone:
            _find_firsts(reader, first, firsts)
        elif loss.is_outdated and first <= mark.split:
            _find_firsts(reader, mark.split, firsts)  # of a topic that was deleted since, any record may be the first
        return
    loss.what.append(f"journal {number} starts at position {first}: {first - mark.split} bytes before it are lost")
    epoch = _find_firsts(reader, first, firsts)
    loss.jumps.append(JournalMark(number, first, first, epoch, reader.find_seed()))


def _find_firsts(reader: JournalReader, position: int, firsts: dict[int, int]) -> int:
    """The first offset of each queue from `position` on; returns the epoch there. A queue that an import lets begin
    behind 0 begins at 0 here: nothing before is missing."""
    epoch = -1
    opened: dict[int, int] = {}
    for entry in reader.entries(position, reader.end()):
        epoch = entry.epoch if epoch < 0 else epoch
        if entry.kind == BATCH and entry.queue_id not in firsts:
            first = entry.base_offset
            firsts[entry.queue_id] = 0 if opened.get(entry.queue_id) == first else first
        elif entry.kind == FACT and isinstance(fact := decode_fact(entry.payload), StartMoved):
            opened[entry.queue_id] = fact.offset
    return max(epoch, 0)


def _look_at_queues(loss: Loss, specs: list[QueueSpec], firsts: dict[int, int], homes: Homes) -> None:
    restarted = {mark.journal for mark in loss.restarts}
    for spec in specs:
        row = loss.image.queues.get(spec.queue_id)
        start, end = (row.log_start, row.end) if row is not None else (0, 0)
        first = firsts.get(spec.queue_id)
        if first is not None and first > end:
            loss.queues.append(QueueLoss(spec.topic, spec.partition, start, first))
            loss.rows.append(QueueRow(spec.queue_id, first, first))
        elif first is None and loss.read_disk_gone:
            loss.queues.append(QueueLoss(spec.topic, spec.partition, 0, None))
        elif first is None and any(homes.may_hold(number, spec) for number in restarted) and not loss.image.clean:
            loss.queues.append(QueueLoss(spec.topic, spec.partition, end, None))


def _look_at_unclaimed(loss: Loss, read_disk: Disk, claimed: set[int], ids: set[int]) -> None:
    """Topics that were made after the metadata were saved."""
    names = [f"{QUEUES}/{name}" for name in read_disk.list(QUEUES) if not name.endswith(DELETED_SUFFIX)]
    for name in names:
        identity = read_identity(read_disk, name)
        if identity is not None and identity.queue_id not in claimed:
            ids.add(identity.queue_id)
            loss.aside.append(name)
    unclaimed = sorted(ids - claimed)
    if unclaimed:
        more = f" and {len(unclaimed) - NAMED_MAX} more" if len(unclaimed) > NAMED_MAX else ""
        named = ", ".join(map(str, unclaimed[:NAMED_MAX]))
        loss.what.append(
            f"no topic claims queue {named}{more}: their topics are not in the metadata, or were deleted; committed "
            f"offsets of such topics are lost"
        )


def _look_at_logs(loss: Loss, specs: list[QueueSpec], read_disk: Disk) -> None:
    """Topics that were deleted since the metadata were saved, and come back: what was split of them may be gone, and
    offsets of which packs still hold records must not be given again."""
    if loss.read_disk_gone:
        return
    pack_set = PackSet(read_disk, loss.image.packs)
    moved = {row.queue_id for row in loss.rows}
    for spec in specs:
        row = loss.image.queues.get(spec.queue_id)
        if spec.queue_id in moved:
            continue
        if row is None:
            extents = [extent for pack in pack_set.packs for extent in pack.of_queue(spec.queue_id)]
            start, end = 0, max((extent.end_offset for extent in extents), default=0)
        else:
            has_log = spec.directory not in loss.aside and bool(numbered(read_disk.list(spec.directory), LOG))
            start, end = row.log_start, row.end if not has_log and row.needs_segments else 0
        if end:
            loss.queues.append(QueueLoss(spec.topic, spec.partition, start, end))
            loss.rows.append(QueueRow(spec.queue_id, end, end))


def _mark_all(loss: Loss, readers: dict[int, JournalReader]) -> None:
    """A checkpoint is published with what was accepted, and without any mark it could not be read."""
    marked = {mark.journal for mark in [*loss.jumps, *loss.restarts]} | set(loss.image.marks)
    for number in set(readers) - marked or ({0} if not marked else ()):
        seed = readers[number].find_seed() if number in readers else 0
        loss.jumps.append(JournalMark(number, 0, 0, 0, seed))


def accept(journal_disk: Disk, read_disk: Disk, loss: Loss, *, epoch: int, seed: int, now_ms: int) -> None:
    """Makes what is left whole. Stopped in the middle, the same start does it again."""
    if loss.read_disk_gone:
        put_aside(read_disk, [name for name in (QUEUES, PACKS, CHECKPOINTS) if read_disk.list(name)], epoch)
    put_aside(read_disk, [name for name in loss.aside if read_disk.list(name)], epoch)
    marks = [*loss.jumps]
    for mark in loss.restarts:
        if journal_disk.list(str(mark.journal)):
            put_aside(journal_disk, [str(mark.journal)], epoch)
        journal_disk.make_dir(str(mark.journal))
        started = JournalMark(mark.journal, mark.split, mark.split, mark.epoch, mark.seed or seed)
        name = journal_segment(mark.journal, mark.split)
        head = segment_entry(mark.journal, started.seed, mark.epoch, mark.split, now_ms)
        journal_disk.replace(name, head)
        marks.append(started)
    journal_disk.sync_dir("")
    for manifest in _salvaged(journal_disk, loss, epoch, now_ms):
        epoch = manifest.epoch
        marks.append(manifest.mark)
    queues = [str(queue) for queue in loss.queues]
    said = msgspec.json.encode({"time_ms": now_ms, "epoch": epoch, "what": loss.what, "queues": queues})
    log = CheckpointLog(read_disk, loss.image)
    remembered = Keyed(LOSSES, str(epoch).encode(), said)
    clean = loss.image.clean and not (loss.read_disk_gone or marks)
    log.publish(CheckpointRows(queues=loss.rows, keyed=[remembered], marks=marks, time_ms=now_ms, clean=clean))
    log.close()


def _salvaged(disk: Disk, loss: Loss, epoch: int, now_ms: int) -> list[Manifest]:
    """Journals made anew of what can be read of them, each in the place of the old one."""
    made = [rebuild(disk, remains, loss.what, loss.queues, epoch=epoch, now_ms=now_ms) for remains in loss.salvages]
    put_aside(disk, [str(manifest.journal) for manifest in made], epoch)
    for manifest in [*made, *loss.unfinished]:
        place(disk, manifest.journal)
    return [*made, *loss.unfinished]


def accepted(keyed: Iterable[tuple[tuple[str, bytes], bytes]]) -> list[dict[str, object]]:
    """What was accepted at this start and before, oldest first."""
    rows = [msgspec.json.decode(value) for (space, _), value in keyed if space == LOSSES]
    return sorted(rows, key=lambda row: int(row["epoch"]))
