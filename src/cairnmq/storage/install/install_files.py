"""Where an install of a journal lies on the read disk until a start puts it in place, and what is in it.

`installs/N/rows` is in the form of a checkpoint file: rows, keyed facts and the mark of journal N, and the numbers of
the packs beside it. Its serial is the epoch of the leader that it came from. It gets its name last, when all else is
durable: without it nothing of an install counts.
"""

from __future__ import annotations

import msgspec

from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, checkpoint_frames
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import COMMIT, INSTALLS

ROWS = "rows"


def install_directory(journal: int) -> str:
    return f"{INSTALLS}/{journal}"


def rows_name(journal: int) -> str:
    return f"{install_directory(journal)}/{ROWS}"


def found_installs(disk: Disk) -> list[int]:
    """Journals of which there is something, whole or not."""
    return sorted(int(name) for name in disk.list(INSTALLS) if name.isdigit())


def read_install(disk: Disk, journal: int) -> CheckpointImage | None:
    """What a whole install says; None: it is not whole."""
    name = rows_name(journal)
    if not disk.exists(name):
        return None
    file = disk.open(name)
    try:
        view = memoryview(file.read(0, file.size()))
        image, is_whole = CheckpointImage(), False
        for kind, rows, end in checkpoint_frames(view):
            image.apply(rows)
            is_whole = kind == COMMIT and end == len(view)
    except (Unreadable, msgspec.MsgspecError):
        return None
    finally:
        file.close()
    return image if is_whole and set(image.marks) == {journal} else None


def remove_install(disk: Disk, journal: int) -> None:
    """Its rows first, durably: what is left of it never counts. Also if they are gone already: an attempt before may
    have failed behind their removal, which a power loss would take back."""
    directory = install_directory(journal)
    if journal not in found_installs(disk):
        return
    if disk.exists(rows_name(journal)):
        disk.remove(rows_name(journal))
    disk.sync_dir(directory)
    disk.remove_tree(directory)
