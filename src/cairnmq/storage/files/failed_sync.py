"""A note on disk that a sync failed: what was written may be gone although it reads well, until it was written again.

A kernel that could not write pages drops its claim that they are dirty. The next sync succeeds, and after a restart of
the process nothing but this note tells that they never reached the disk. A power loss takes the cache with the note.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import UNSYNCED


def unsynced_name(directory: str) -> str:
    return f"{directory}/{UNSYNCED}" if directory else UNSYNCED


@contextmanager
def noting_unsynced(disk: Disk, directory: str) -> Iterator[None]:
    """Around syncs: whichever fails leaves the note in `directory`."""
    try:
        yield
    except OSError as error:
        try:
            disk.create(unsynced_name(directory)).close()
        except FileExistsError:
            pass
        except OSError as unnoted:
            raise OSError(
                error.errno,
                f"{error.strerror}; and no note of it could be left ({unnoted.strerror}): unmount the disk or restart "
                f"the machine before the broker starts again",
            ) from error
        raise
