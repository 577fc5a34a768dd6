"""The durable statement of split positions and per-queue facts: an append-only file of deltas, rewritten when large.

`publish` appends one COMMIT frame and syncs it: that is the moment the checkpoint exists. A start always begins a new
file with the whole state, so a torn last frame is never appended to. Layout: docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from cairnmq.errors import Corrupt
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.format import (
    CHECKPOINT_MAGIC,
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    COMMIT,
    PART,
    CheckpointRows,
    JournalMark,
    Keyed,
    QueueRow,
    checkpoint_frame,
    digits,
    numbered,
    read_checkpoint_frame,
)

T = TypeVar("T")

PART_ROWS = 2000
REWRITE_BYTES_MIN = 4 << 20


class CheckpointImage:
    """What the last published checkpoint says."""

    def __init__(self) -> None:
        self.marks: dict[int, JournalMark] = {}
        self.queues: dict[int, QueueRow] = {}
        self.keyed: dict[tuple[str, bytes], bytes] = {}
        self.packs: list[int] = []
        self.time_ms = 0
        self.clean = False
        self.file_number = 0

    def apply(self, rows: CheckpointRows) -> None:
        for row in rows.queues:
            self.queues[row.queue_id] = row
        for queue_id in rows.gone:
            self.queues.pop(queue_id, None)
        for fact in rows.keyed:
            if fact.value is None:
                self.keyed.pop((fact.space, fact.key), None)
            else:
                self.keyed[fact.space, fact.key] = fact.value
        for mark in rows.marks:
            self.marks[mark.journal] = mark
        if rows.packs is not None:
            self.packs = rows.packs
        self.time_ms = rows.time_ms
        self.clean = rows.clean


def checkpoint_name(number: int) -> str:
    return f"{CHECKPOINTS}/{digits(number, CHECKPOINT_SUFFIX)}"


def load_checkpoint(disk: Disk) -> CheckpointImage:
    """The newest checkpoint file is the one that counts: an older one is removed only after it was complete."""
    numbers = numbered(disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX)
    image = CheckpointImage()
    if not numbers:
        return image
    name = checkpoint_name(numbers[-1])
    file = disk.open(name)
    view = memoryview(file.read(0, file.size()))
    file.close()
    waiting: list[CheckpointRows] = []
    end = 0
    for kind, rows, end in checkpoint_frames(view):  # noqa: B007 (the last one is wanted)
        waiting.append(rows)
        if kind == COMMIT:
            for part in waiting:
                image.apply(part)
            waiting.clear()
    # A publish is synced before the next one begins, so a whole one behind bad bytes proves damage. The older one
    # before it must not count: files that it names may be gone, and others that it does not know would be removed.
    if end < len(view) and has_commit(view, end):
        raise Corrupt(
            f"checkpoint file {name} is damaged at {end}, and a later checkpoint stands behind. Restore the file; "
            f"`cairn verify` tells more."
        )
    if not image.marks:
        raise Corrupt(
            f"checkpoint file {name} holds no complete checkpoint; `cairn verify` tells more. "
            f"Restore the file, or let `cairn serve --accept-loss` go on without what it said."
        )
    image.file_number = numbers[-1]
    return image


def checkpoint_frames(view: memoryview) -> Iterator[tuple[int, CheckpointRows, int]]:
    """Frames in order, with the position behind each; stops at the first that is not whole."""
    at = 0
    while (frame := read_checkpoint_frame(view, at)) is not None:
        yield frame
        at = frame[2]


def has_commit(view: memoryview, position: int) -> bool:
    """Is there a whole checkpoint anywhere behind `position`, up to which all is well?

    Clients choose some of the bytes of a frame, but do not know the seeds of journals, which stand in every checkpoint.
    """
    known = {(m.journal, m.seed) for _, rows, _ in checkpoint_frames(view[:position]) for m in rows.marks if m.seed}
    raw, magic = bytes(view), CHECKPOINT_MAGIC.to_bytes(2, "big")
    while (position := raw.find(magic, position + 1)) >= 0:
        try:
            frame = read_checkpoint_frame(view, position)
        except msgspec.MsgspecError:
            continue
        if frame is not None and frame[0] == COMMIT:
            if not known or any((mark.journal, mark.seed) in known for mark in frame[1].marks):
                return True
    return False


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
            self.image.clean = False
            self._rewrite()

    def publish(self, rows: CheckpointRows) -> None:
        """Returns when the rows are durable and count."""
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
        """Whole state into a new file under another name, then the rename makes it count, then the old one goes."""
        old = self.image.file_number
        name = checkpoint_name(old + 1)
        temporary = name + ".new"
        self.disk.make_dir(CHECKPOINTS)
        self.disk.remove(temporary)
        file = self.disk.create(temporary)
        size = 0
        for part in self._parts():
            size += file.append([checkpoint_frame(PART, part)])
        commit = CheckpointRows(
            marks=list(self.image.marks.values()),
            time_ms=self.image.time_ms,
            clean=self.image.clean,
            packs=self.image.packs,
        )
        size += file.append([checkpoint_frame(COMMIT, commit)])
        file.sync()
        self.disk.rename(temporary, name)
        self.disk.sync_dir(CHECKPOINTS)
        self.disk.sync_dir("")
        if self._file is not None:
            self._file.close()
        self._file = file
        self._loaded = False
        self._base_bytes = self._bytes = size
        self.image.file_number = old + 1
        for number in numbered(self.disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX):
            if number <= old:
                self.disk.remove(checkpoint_name(number))

    def _parts(self) -> Iterator[CheckpointRows]:
        for queues in _slices(self.image.queues.values()):
            yield CheckpointRows(queues=queues)
        for keyed in _slices(self.image.keyed.items()):
            yield CheckpointRows(keyed=[Keyed(space, key, value) for (space, key), value in keyed])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _slices(items: Iterable[T]) -> Iterator[list[T]]:
    part: list[T] = []
    for item in items:
        part.append(item)
        if len(part) == PART_ROWS:
            yield part
            part = []
    if part:
        yield part
