"""The durable statement of split positions and per-queue facts: an append-only file of deltas, rewritten when large.

`publish` appends one COMMIT frame and syncs it: that is the moment the checkpoint exists. A start always begins a new
file with the whole state, so a torn last frame is never appended to. The file before it is kept under another name, for
a repair. Layout: docs/format.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from cairnmq.errors import Corrupt, TooNew
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame, is_newer_frame, read_checkpoint_frame
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import (
    CHECKPOINT_MAGIC,
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    COMMIT,
    PART,
    PREVIOUS_SUFFIX,
    UNFINISHED,
    CheckpointRows,
    JournalMark,
    KeyedRow,
    QueueRow,
    digits,
    numbered,
)

T = TypeVar("T")

PART_ROWS = 2000
REWRITE_BYTES_MIN = 4 << 20
REPAIR = "Run `cairn repair DIR`, which rebuilds the checkpoint from segments, packs and journals"


class CheckpointImage:
    """What the last published checkpoint says."""

    def __init__(self) -> None:
        self.marks: dict[int, JournalMark] = {}
        self.queues: dict[int, QueueRow] = {}
        self.keyed: dict[tuple[str, bytes], KeyedRow] = {}
        self.packs: list[int] = []
        self.time_ms = 0
        self.file_number = 0
        self.serial = 0  # grows with every publish, over all starts; a rewrite keeps it

    def keyed_values(self) -> dict[tuple[str, bytes], bytes]:
        return {place: row.value for place, row in self.keyed.items() if row.value is not None}

    def apply(self, rows: CheckpointRows) -> None:
        for row in rows.queues:
            self.queues[row.queue_id] = row
        for queue_id in rows.gone:
            self.queues.pop(queue_id, None)
        for fact in rows.keyed:
            if fact.value is None:
                self.keyed.pop((fact.space, fact.key), None)
            else:
                self.keyed[fact.space, fact.key] = fact
        for mark in rows.marks:
            self.marks[mark.journal] = mark
        for journal in rows.unhosted:
            self.marks.pop(journal, None)
        if rows.packs is not None:
            self.packs = rows.packs
        self.time_ms = rows.time_ms
        self.serial = max(self.serial, rows.serial)


def checkpoint_name(number: int) -> str:
    return f"{CHECKPOINTS}/{digits(number, CHECKPOINT_SUFFIX)}"


def previous_name(number: int) -> str:
    return f"{CHECKPOINTS}/{digits(number, PREVIOUS_SUFFIX)}"


def load_checkpoint(disk: Disk) -> CheckpointImage:
    """The newest checkpoint file is the one that counts: it got its name only when it was complete. The previous one
    has another kind of name, so that it never counts, not even when the newest is lost."""
    numbers = numbered(disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX)
    image = CheckpointImage()
    if not numbers:
        return image
    name = checkpoint_name(numbers[-1])
    file = disk.open(name)
    view = memoryview(file.read(0, file.size()))
    file.close()
    waiting: list[CheckpointRows] = []
    end, is_whole, is_newer = 0, False, False
    try:
        for kind, rows, end in checkpoint_frames(view):  # noqa: B007 (the last one is wanted)
            waiting.append(rows)
            if kind == COMMIT:
                is_whole = True
                for part in waiting:
                    image.apply(part)
                waiting.clear()
    except msgspec.MsgspecError:  # its checksum holds
        is_newer = True
    if is_newer or is_newer_frame(view, end):
        raise TooNew(
            f"checkpoint file {name} at {end} was written by a newer version of CairnMQ, or is damaged. Start the "
            f"newer version, or restore the file; nothing was changed."
        )
    # A publish is synced before the next one begins, so a whole one behind bad bytes proves damage. The older one
    # before it must not count: files that it names may be gone, and others that it does not know would be removed.
    if end < len(view) and has_commit(view, end):
        raise Corrupt(
            f"checkpoint file {name} is damaged at {end}, and a later checkpoint follows. {REPAIR}, or restore the "
            f"file; `cairn verify` shows details."
        )
    if not is_whole:
        raise Corrupt(
            f"checkpoint file {name} holds no complete checkpoint. {REPAIR}, or restore the file; `cairn verify` tells "
            f"more."
        )
    image.file_number = numbers[-1]
    return image


def checkpoint_frames(view: memoryview) -> Iterator[tuple[int, CheckpointRows, int]]:
    """Frames in order, with the position behind each; stops at the first that is not whole."""
    at = 0
    while (frame := read_checkpoint_frame(view, at)) is not None:
        yield frame
        at = frame[2]


def whole_frame_at(view: memoryview, at: int) -> tuple[int, CheckpointRows, int] | None:
    """None: no frame stands there, or one that this version cannot read."""
    try:
        return read_checkpoint_frame(view, at)
    except msgspec.MsgspecError:
        return None


def has_commit(view: memoryview, position: int) -> bool:
    """Is there a whole checkpoint anywhere behind `position`, up to which all is well?"""
    known = {(m.journal, m.seed) for _, rows, _ in checkpoint_frames(view[:position]) for m in rows.marks if m.seed}
    return find_commit(view, position, known) >= 0


def find_commit(view: memoryview, position: int, seeds: Collection[tuple[int, int]]) -> int:
    """Where the first whole checkpoint stands behind `position`; -1: there is none. `seeds`: journal and CRC seed.

    Clients choose some of the bytes of a frame, but do not know the seeds of journals, which stand in every checkpoint.
    """
    raw, magic = bytes(view), CHECKPOINT_MAGIC.to_bytes(2, "big")
    while (position := raw.find(magic, position + 1)) >= 0:
        frame = whole_frame_at(view, position)
        if frame is not None and frame[0] == COMMIT:
            if not seeds or any((mark.journal, mark.seed) in seeds for mark in frame[1].marks):
                return position
    return -1


class CheckpointLog:
    """The writer. Owned by the splitter; holds the whole state so that it can rewrite the file."""

    def __init__(self, disk: Disk, image: CheckpointImage) -> None:
        self.disk = disk
        self.image = image
        self._file: File | None = None
        self._base_bytes = 0
        self._bytes = 0
        self._loaded = image.file_number > 0

    def settle(self) -> None:
        """Before anything is deleted on the word of the checkpoint that was loaded: its writer may have died before it
        was on disk, and a power loss would then bring back an older one, which still refers to what was deleted."""
        if self._loaded:
            self._rewrite()

    def publish(self, rows: CheckpointRows) -> None:
        """Returns when the rows are durable and count. If it raises they may count all the same: who reads the
        checkpoint next knows by its serial."""
        rows = replace(rows, serial=self.image.serial + 1)
        self.image.apply(rows)
        if self._file is None or self._bytes > max(REWRITE_BYTES_MIN, 2 * self._base_bytes):
            self._rewrite()
            return
        frame = checkpoint_frame(COMMIT, rows)
        file, self._file = self._file, None  # a failure leaves none: half a frame is never appended to
        file.append([frame])
        file.sync()
        self._file = file
        self._bytes += len(frame)

    def _rewrite(self) -> None:
        """Whole state into a new file; what was the newest is the previous one from now on."""
        known = numbered(self.disk.list(CHECKPOINTS), PREVIOUS_SUFFIX)  # one of a file that was lost may be higher
        number = max([self.image.file_number, *known]) + 1
        file = write_checkpoint(self.disk, self.image, number)
        if self._file is not None:
            self._file.close()
        self._file = file
        self._loaded = False
        self._base_bytes = self._bytes = file.size()
        self.image.file_number = number
        with suppress(OSError):  # the new one counts, whatever the disk refuses now; the next rewrite does it again
            self._keep_previous()

    def _keep_previous(self) -> None:
        """Of the older files one stays. It loses the name of a checkpoint, durably: if the newest is lost one day, a
        start must not take this one for it."""
        names = self.disk.list(CHECKPOINTS)
        older = [number for number in numbered(names, CHECKPOINT_SUFFIX) if number < self.image.file_number]
        if not older:
            return
        self.disk.rename(checkpoint_name(older[-1]), previous_name(older[-1]))
        self.disk.sync_dir(CHECKPOINTS)
        for number in older[:-1]:
            self.disk.remove(checkpoint_name(number))
        for number in numbered(names, PREVIOUS_SUFFIX):
            if number != older[-1]:
                self.disk.remove(previous_name(number))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def write_checkpoint(disk: Disk, image: CheckpointImage, number: int) -> File:
    """The whole state as file `number`, under another name until it is synced: its own name makes it count."""
    name = checkpoint_name(number)
    temporary = name + UNFINISHED
    disk.make_dir(CHECKPOINTS)
    disk.remove(temporary)
    file = disk.create(temporary)
    write_parts(file, image)
    commit = CheckpointRows(
        marks=list(image.marks.values()),
        time_ms=image.time_ms,
        packs=image.packs,
        serial=image.serial,
    )
    file.append([checkpoint_frame(COMMIT, commit)])
    file.sync()
    disk.rename(temporary, name)
    disk.sync_dir(CHECKPOINTS)
    disk.sync_dir("")
    return file


def write_parts(file: File, image: CheckpointImage) -> None:
    """Rows and keyed facts; what makes them count is a COMMIT frame behind them."""
    for part in parts_of(image):
        file.append([checkpoint_frame(PART, part)])


def parts_of(image: CheckpointImage) -> Iterator[CheckpointRows]:
    for queues in _slices(image.queues.values()):
        yield CheckpointRows(queues=queues)
    for keyed in _slices(image.keyed.values()):
        yield CheckpointRows(keyed=keyed)


def _slices(items: Iterable[T]) -> Iterator[list[T]]:
    part: list[T] = []
    for item in items:
        part.append(item)
        if len(part) == PART_ROWS:
            yield part
            part = []
    if part:
        yield part
