"""Where files go that cannot be used and may still be wanted: `lost/EPOCH` on the same disk, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

from cairnmq.storage.files.disk import Disk, File

LOST = "lost"
COPY_BYTES = 1 << 20


def put_aside(disk: Disk, names: Sequence[str], where: object) -> list[str]:
    """Files or directories to `lost/WHERE` (an epoch, mostly), where a person finds them; durable on return. Returns
    their new names."""
    if not names:
        return []
    aside = f"{LOST}/{where}"
    directories = sorted({name.rpartition("/")[0] for name in names})
    for directory in directories:
        disk.make_dir(f"{aside}/{directory}".rstrip("/"))
    for directory in ("", LOST, aside, *(f"{aside}/{one.rpartition('/')[0]}".rstrip("/") for one in directories)):
        disk.sync_dir(directory)  # before the old names can be gone
    targets = [_free_name(disk, f"{aside}/{name}") for name in names]
    for name, target in zip(names, targets, strict=True):
        disk.rename(name, target)
    for directory in directories:
        disk.sync_dir(f"{aside}/{directory}".rstrip("/"))
        disk.sync_dir(directory)
    return targets


def copy_aside(disk: Disk, file: File, position: int, name: str, where: object) -> str:
    """The end of a file, from `position` on, to `lost/WHERE/NAME`, durable on return: the file is to be cut there, and
    goes on being used. Returns the new name. OSError: nothing is left there."""
    directory = f"{LOST}/{where}/{name.rpartition('/')[0]}".rstrip("/")
    disk.make_dir(directory)
    target = _free_name(disk, f"{LOST}/{where}/{name}")
    copy = disk.create(target)
    try:
        while data := file.read(position, COPY_BYTES):
            position += copy.append([data])
        copy.sync()
    except OSError:
        disk.remove(target)
        raise
    finally:
        copy.close()
    for one in ("", LOST, f"{LOST}/{where}", directory):
        disk.sync_dir(one)
    return target


def _free_name(disk: Disk, name: str) -> str:
    """The same thing may have to be put aside twice in one epoch."""
    number, free = 1, name
    while disk.exists(free):
        number += 1
        free = f"{name}.{number}"
    return free
