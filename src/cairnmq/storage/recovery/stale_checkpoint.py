"""Is the checkpoint an old one? What packs say of a later one, that is damaged or in whose place a copy was put.

A start removes packs that its checkpoint does not name, so it must not go by an old one. After a kill there may always
be such packs: what a round has written since, or a merge that no checkpoint has counted. Files that are lost beside
them prove nothing; their records cost an error, and all else goes on. One of the packs that a merge was to replace is
made again from the merged one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import REPAIR, CheckpointImage, checkpoint_name
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import PACK_SUFFIX, PACKS, UNKNOWN_SERIAL, numbered, pack_name
from cairnmq.storage.packs.pack import PackReader, read_label
from cairnmq.storage.packs.pack_set import gaps, merged
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.segment import LOG

Directories = Iterable[tuple[int, str]]  # queue id and directory, of queues that have segments by the checkpoint
Offsets = tuple[int, int]  # from, to before

DAMAGED = "its last part is damaged, or it is an old copy"


def refuse_stale_checkpoint(disk: Disk, image: CheckpointImage, specs: Iterable[QueueSpec]) -> None:
    """Raises before anything is changed. `specs`: of the queues that exist."""
    for _, sign in signs_of_a_later(disk, image, _segmented(image, specs)):
        raise Corrupt(f"{checkpoint_name(image.file_number)} {sign}. {REPAIR}, or restore it; nothing was changed.")


def _segmented(image: CheckpointImage, specs: Iterable[QueueSpec]) -> Iterator[tuple[int, str]]:
    for spec in specs:
        row = image.queues.get(spec.queue_id)
        if row is not None and row.needs_segments:
            yield spec.queue_id, spec.directory


def signs_of_a_later(disk: Disk, image: CheckpointImage, directories: Directories) -> Iterator[tuple[int, str]]:
    """Packs, and what is wrong with a checkpoint that does not name them."""
    held = set(numbered(disk.list(PACKS), PACK_SUFFIX))
    unnamed = sorted(held.difference(image.packs))
    if not unnamed or not image.file_number:
        return
    labels = [label for number in unnamed if (label := read_label(disk, number)) is not None]
    for number, serial in labels:
        if serial > image.serial:
            was = f"is number {image.serial}, and {pack_name(number)} was written when there was a number {serial}"
            yield number, f"{was}: {DAMAGED}"
    lost = [number for number in image.packs if number not in held]
    without = {queue_id: name for queue_id, name in directories if not numbered(disk.list(name), LOG)}
    gone = [*map(pack_name, lost), *without.values()]
    if not gone:
        return
    missing: dict[int, list[Offsets]] | None = None
    for number, serial in labels:
        names = f"names {gone[0]}, which is gone, and not {pack_name(number)}"
        if serial == UNKNOWN_SERIAL:
            yield number, f"{names}, which an older version has written: {DAMAGED}, or what is gone was lost"
        elif serial == image.serial:
            if gone == [*map(pack_name, lost[:1])] and _is_merge_under_way(disk, number, image, held):
                continue  # what is lost is made again from it
            missing = missing if missing is not None else _missing(disk, image, held, without)
            if only := _held_here_alone(disk, number, missing):
                why = f"{DAMAGED}, or what is gone was lost while that pack was about to take its place"
                yield number, f"{names}, which alone holds {only}: {why}"


def _missing(disk: Disk, image: CheckpointImage, held: set[int], without: Iterable[int]) -> dict[int, list[Offsets]]:
    """By queue, offsets below the checkpoint that nothing holds which it names. Those behind it are in journals."""
    packs = [pack for number in image.packs if number in held and (pack := _opened(disk, number)) is not None]
    missing = {row.queue_id: found for row in image.queues.values() if (found := list(gaps(row, [])))}
    try:
        for queue_id, extents in merged(packs):
            row = image.queues.get(queue_id)
            if row is not None:
                missing[queue_id] = list(gaps(row, [extent for _, extent in extents]))
    except (Damage, Unreadable):
        pass  # then too much counts as missing, and a start is rather refused
    for queue_id in without:
        row = image.queues[queue_id]
        missing.setdefault(queue_id, []).append((max(row.log_start, row.packed_end), row.end))
    for pack in packs:
        pack.close()
    return missing


def _is_merge_under_way(disk: Disk, number: int, image: CheckpointImage, held: set[int]) -> bool:
    """Another pack holds the same as this one, which was to take its place: when a checkpoint has counted that, all of
    those that it replaces go."""
    pack = _opened(disk, number)
    others = [each for one in image.packs if one in held and (each := _opened(disk, one)) is not None]
    try:
        offsets = {(extent.queue_id, extent.base_offset) for extent in pack or ()}
        return any((extent.queue_id, extent.base_offset) in offsets for other in others for extent in other)
    except (Damage, Unreadable):
        return False
    finally:
        for each in [*others, *([pack] if pack is not None else [])]:
            each.close()


def _held_here_alone(disk: Disk, number: int, missing: Mapping[int, list[Offsets]]) -> str:
    pack = _opened(disk, number)
    if pack is None:
        return ""  # it was never finished
    try:
        for extent in pack:
            for first, end in missing.get(extent.queue_id, ()):
                low, high = max(first, extent.base_offset), min(end, extent.end_offset)
                if low < high:
                    return f"offsets {low} to {high - 1} of queue {extent.queue_id}"
    except (Damage, Unreadable):
        return ""
    finally:
        pack.close()
    return ""


def _opened(disk: Disk, number: int) -> PackReader | None:
    try:
        return PackReader.open(disk, number)
    except (Corrupt, OSError):
        return None
