"""A disk that is gone, or not mounted: what that loses, and how to go on with the rest when a person accepts it.

Each disk knows enough of the other to notice. `find_loss` and `find_metadata_loss` only read. `accept` turns what is
left into a directory that a normal start recovers: whatever cannot be used is moved to `lost/EPOCH`, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint import CheckpointImage, CheckpointLog, load_checkpoint
from cairnmq.storage.disk import Disk
from cairnmq.storage.format import (
    BATCH,
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    PACKS,
    QUEUES,
    CheckpointRows,
    JournalMark,
    Keyed,
    QueueRow,
    journal_segment,
    numbered,
    segment_entry,
)
from cairnmq.storage.journal import JournalReader
from cairnmq.storage.queue_log import QueueSpec

LOSSES = "losses"  # the space of facts that remember what was accepted
LOST = "lost"


class Lost(Fault):
    """Something is gone, and nobody accepted that yet."""


class QueueLoss(Struct, frozen=True):
    """Records of a queue that are gone: offsets from `start` to before `end`; to an end nobody knows if it is None."""

    topic: str
    partition: int
    start: int
    end: int | None

    def __str__(self) -> str:
        until = f"to {self.end - 1}" if self.end is not None else "on, as many as there were"
        return f"{self.topic}-{self.partition}: offsets {self.start} {until}"


class Loss(Struct):
    """Everything that is gone, and what is needed to go on."""

    what: list[str]
    queues: list[QueueLoss]
    image: CheckpointImage
    read_disk_gone: bool
    restarts: list[JournalMark]  # journals that go on at `split` in a new file; what they hold is moved away
    jumps: list[JournalMark]  # journals that are read from `split` on, where their first file begins
    rows: list[QueueRow]  # queues that begin where their records begin
    epoch_max: int = 0
    queue_id_max: int = 0

    def text(self) -> str:
        lines = [*self.what, *(f"lost: {queue}" for queue in self.queues)]
        return "\n  ".join(
            [
                "something is gone, and nothing was changed. Is a disk not mounted, or --journal-dir another one?",
                *lines,
                "`cairn serve --accept-loss` goes on with the rest; what cannot be used is kept in the directory lost/",
            ]
        )


def find_loss(journal_disk: Disk, read_disk: Disk, specs: Iterable[QueueSpec]) -> Loss | None:
    """What two disks that contradict each other have lost; None if they do not."""
    try:
        image, gone = load_checkpoint(read_disk), ""
        if not image.file_number:
            gone = "the read disk holds no checkpoint, but the journals go on behind one"
    except Corrupt as error:
        image, gone = CheckpointImage(), str(error)
    known = sorted(specs, key=lambda spec: (spec.topic, spec.partition))
    loss = Loss([], [], image, bool(gone), [], [], [])
    readers = _readers(journal_disk, image)
    try:
        firsts: dict[int, int] = {}
        for number, reader in readers.items():
            _look_at(loss, number, reader, firsts)
        if gone and not (loss.jumps or _is_corrupt(read_disk)):
            return None  # every journal begins at 0: nothing is missing
        if gone:
            loss.what.insert(0, f"{gone}. What queue logs, packs and checkpoints held can no longer be told from junk")
        elif not (loss.jumps or loss.restarts):
            return None
        _look_at_queues(loss, known, firsts, len(readers))
    finally:
        for reader in readers.values():
            reader.close()
    return loss


def find_metadata_loss(journal_disk: Disk, read_disk: Disk) -> Loss | None:
    """For a start that finds no metadata: None if there is nothing that it could be missing for."""
    try:
        image = load_checkpoint(read_disk)
    except Corrupt:
        image = CheckpointImage()
    readers = _readers(journal_disk, image)
    if not any(reader.bases for reader in readers.values()) and not image.file_number:
        return None
    what = ["the metadata is missing: names, partitions and settings of all topics are gone, so no record can be used"]
    loss = Loss(what, [], image, True, [], [], [], queue_id_max=max([0, *image.queues]))
    for number, reader in readers.items():
        records = size = 0
        ids: set[int] = set()
        mark = image.marks.get(number)
        end = max(reader.end(), mark.split if mark is not None else 0)
        for entry in reader.entries(reader.bases[0], end) if reader.bases else ():
            loss.epoch_max = max(loss.epoch_max, entry.epoch)
            if entry.kind == BATCH:
                ids.add(entry.queue_id)
                records += entry.count
                size += len(entry.payload)
        loss.queue_id_max = max([loss.queue_id_max, *ids])
        what.append(f"journal {number} holds {records} records of {len(ids)} partitions, {size} bytes")
        loss.restarts.append(JournalMark(number, end, end, loss.epoch_max, reader.find_seed()))
        reader.close()
    loss.epoch_max = max([loss.epoch_max, *(mark.epoch for mark in image.marks.values())])
    loss.image = CheckpointImage()
    return loss


def _readers(journal_disk: Disk, image: CheckpointImage) -> dict[int, JournalReader]:
    numbers = {int(name) for name in journal_disk.list("") if name.isdigit()} | set(image.marks)
    return {number: JournalReader(journal_disk, number) for number in sorted(numbers)}


def _is_corrupt(read_disk: Disk) -> bool:
    """The checkpoint is there and cannot be read, so it must be moved away even if nothing else is missing."""
    return bool(numbered(read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX))


def _look_at(loss: Loss, number: int, reader: JournalReader, firsts: dict[int, int]) -> None:
    """Adds what is missing of one journal, and where the queues begin in what is left of it."""
    mark = loss.image.marks.get(number) or JournalMark(number, 0, 0, 0, 0)
    if not reader.bases:
        if mark.split > 0:
            known = max(0, mark.high_watermark - mark.split)
            loss.what.append(
                f"journal {number} has no files, but the checkpoint stands at position {mark.split}: what was written "
                f"behind it is gone, at least {known} bytes"
                + ("; the last stop was clean, so that may be nothing" if loss.image.clean else "")
            )
            loss.restarts.append(JournalMark(number, mark.split, mark.split, mark.epoch, mark.seed))
        return
    first = reader.bases[0]
    if mark.seed:
        reader.seed = mark.seed
    if first <= mark.split or reader.claims_behind(mark.split) <= mark.split:
        if loss.read_disk_gone:
            _find_firsts(reader, first, firsts)
        return
    loss.what.append(f"journal {number} begins at position {first}: {first - mark.split} bytes before are gone")
    epoch = _find_firsts(reader, first, firsts)
    loss.jumps.append(JournalMark(number, first, first, epoch, reader.find_seed()))


def _find_firsts(reader: JournalReader, position: int, firsts: dict[int, int]) -> int:
    """The first offset of each queue from `position` on; returns the epoch there."""
    epoch = -1
    for entry in reader.entries(position, reader.end()):
        epoch = entry.epoch if epoch < 0 else epoch
        if entry.kind == BATCH:
            firsts.setdefault(entry.queue_id, entry.base_offset)
    return max(epoch, 0)


def _look_at_queues(loss: Loss, specs: list[QueueSpec], firsts: dict[int, int], journals: int) -> None:
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
        elif first is None and spec.queue_id % journals in restarted and not loss.image.clean:
            loss.queues.append(QueueLoss(spec.topic, spec.partition, end, None))


def accept(journal_disk: Disk, read_disk: Disk, loss: Loss, *, epoch: int, seed: int, now_ms: int) -> None:
    """Makes what is left whole. Stopped in the middle, the same start does it again."""
    if loss.read_disk_gone:
        put_aside(read_disk, [name for name in (QUEUES, PACKS, CHECKPOINTS) if read_disk.list(name)], epoch)
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
    queues = [str(queue) for queue in loss.queues]
    said = msgspec.json.encode({"time_ms": now_ms, "epoch": epoch, "what": loss.what, "queues": queues})
    log = CheckpointLog(read_disk, loss.image)
    remembered = Keyed(LOSSES, str(epoch).encode(), said)
    log.publish(CheckpointRows(queues=loss.rows, keyed=[remembered], marks=marks, time_ms=now_ms))
    log.close()


def put_aside(disk: Disk, names: Sequence[str], epoch: int) -> None:
    """Files or directories of the disk's root to where a person finds them; durable on return."""
    if not names:
        return
    aside = f"{LOST}/{epoch}"
    disk.make_dir(aside)
    for name in names:
        disk.rename(name, f"{aside}/{name}")
    for directory in (aside, LOST, ""):
        disk.sync_dir(directory)


def accepted(keyed: Iterable[tuple[tuple[str, bytes], bytes]]) -> list[dict[str, object]]:
    """What was accepted at this start and before, oldest first."""
    rows = [msgspec.json.decode(value) for (space, _), value in keyed if space == LOSSES]
    return sorted(rows, key=lambda row: int(row["epoch"]))
