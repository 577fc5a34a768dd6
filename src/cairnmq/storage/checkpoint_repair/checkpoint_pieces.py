"""What can still be read of checkpoint files: the newest, which is damaged or gone, and the previous one.

Each frame has a checksum, so what a frame says was true when it was written. After a bad one the next is found by the
length in its head, or else by a search, which takes only whole checkpoints that hold the seed of a journal: clients
choose some of the bytes of a frame, and do not know the seeds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct, field

from cairnmq.errors import TooNew
from cairnmq.storage.checkpoint.checkpoint import (
    CheckpointImage,
    checkpoint_name,
    find_commit,
    previous_name,
    whole_frame_at,
)
from cairnmq.storage.files.checkpoint_frame import is_newer_frame
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import (
    CHECKPOINT_HEAD,
    CHECKPOINT_SIZE,
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    COMMIT,
    PREVIOUS_SUFFIX,
    CheckpointRows,
    numbered,
)

Seeds = Collection[tuple[int, int]]  # journal number and CRC seed, of the journals that are there


class Pieces(Struct):
    """All that the files say, later frames over earlier ones."""

    image: CheckpointImage = field(default_factory=CheckpointImage)
    # (journal, from, to): of what the journals said there, a part may be missing
    missing: list[tuple[int, int, int]] = field(default_factory=list)
    whole_ms: int = 0  # the time of the last checkpoint before the first that is missing; 0: there is none
    read: list[str] = field(default_factory=list)  # files of which something is used
    newest: str = ""  # the file that counted; empty: it is gone
    number: int = 1  # of the file that takes its place


def read_pieces(disk: Disk, seeds: Seeds) -> Pieces:
    """TooNew, if a frame was written by a later version."""
    names = disk.list(CHECKPOINTS)
    numbers, previous = numbered(names, CHECKPOINT_SUFFIX), numbered(names, PREVIOUS_SUFFIX)
    pieces = Pieces()
    pieces.newest = checkpoint_name(numbers[-1]) if numbers else ""
    pieces.number = numbers[-1] if numbers else max([0, *previous]) + 1
    for name in [*map(previous_name, previous[-1:]), *([pieces.newest] if numbers else [])]:
        frames = list(_frames(memoryview(_read(disk, name)), seeds, name))
        if any(frame is not None and _is_foreign(frame[1], seeds) for frame in frames):
            continue  # of other journals than these
        if _add(pieces, frames):
            pieces.read.append(name)
    return pieces


def _read(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read(0, file.size())
    except Unreadable:
        return b""
    finally:
        file.close()


def _frames(view: memoryview, seeds: Seeds, name: str) -> Iterator[tuple[int, CheckpointRows] | None]:
    """Those that can be read, in order; None for each stretch that cannot."""
    at = 0
    while at < len(view):
        frame = whole_frame_at(view, at)
        if frame is not None:
            yield frame[0], frame[1]
            at = frame[2]
            continue
        if is_newer_frame(view, at):
            raise TooNew(
                f"checkpoint file {name} at {at} was written by a newer version of CairnMQ. Repair it with the newer "
                f"version; nothing was changed."
            )
        yield None
        at = _next_frame(view, at, seeds)


def _next_frame(view: memoryview, at: int, seeds: Seeds) -> int:
    """Where the next frame stands after a bad one."""
    if len(view) - at >= CHECKPOINT_SIZE:
        length: int = CHECKPOINT_HEAD.unpack_from(view, at)[3]
        following = at + CHECKPOINT_SIZE + length
        if whole_frame_at(view, following) is not None:
            return following
    found = find_commit(view, at, seeds) if seeds else -1
    return found if found >= 0 else len(view)


def _is_foreign(rows: CheckpointRows, seeds: Seeds) -> bool:
    known = dict(seeds)
    return any(mark.seed and known.get(mark.journal, mark.seed) != mark.seed for mark in rows.marks)


def _add(pieces: Pieces, frames: list[tuple[int, CheckpointRows] | None]) -> bool:
    """A file begins with the whole state, and goes on with what has changed. It got its name when the whole state was
    in it, so whatever can be read of that counts, also without its end. False: nothing can be read."""
    first = next((at for at, frame in enumerate(frames) if frame is not None and frame[0] == COMMIT), -1)
    is_whole = first >= 0 and None not in frames[: first + 1]
    if is_whole:
        pieces.image, pieces.missing, pieces.whole_ms, pieces.read = CheckpointImage(), [], 0, []
    is_broken, was_broken = not is_whole, not is_whole
    since = {number: mark.split for number, mark in pieces.image.marks.items()}
    for frame in frames:
        if frame is None:
            is_broken = was_broken = True
            continue
        kind, rows = frame
        time_ms = pieces.image.time_ms
        pieces.image.apply(rows)
        if kind != COMMIT:
            pieces.image.time_ms = time_ms
            continue
        if is_broken:
            pieces.missing += ((mark.journal, since.get(mark.journal, 0), mark.split) for mark in rows.marks)
            is_broken = False
        if not was_broken:
            pieces.whole_ms = rows.time_ms
        since = {number: mark.split for number, mark in pieces.image.marks.items()}
    return any(frame is not None for frame in frames)
