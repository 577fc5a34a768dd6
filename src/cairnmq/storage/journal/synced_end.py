"""The synced end of a journal, said in a second place: a small file beside its segments.

The journal itself says how far it was synced only in what is written later. When nothing follows, a tail that is
missing looks like one that was never there. So after each sync that succeeded the end is written into this file, in
place, and the file is not synced itself. It never says too much: after kill -9 it is exact, after a power loss it may
be older, torn or missing, and then it says less or nothing.
"""

from __future__ import annotations

from contextlib import suppress

from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import SYNCED_FILE, SYNCED_HEAD, SyncedEnd


def synced_name(number: int) -> str:
    return f"{number}/{SYNCED_FILE}"


def read_synced_end(disk: Disk, number: int) -> SyncedEnd | None:
    """None: there is nothing to be known."""
    try:
        file = disk.open(synced_name(number))
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = SyncedEnd.unseal(file.read(0, 2 * SYNCED_HEAD.size))
    except OSError:
        return None
    finally:
        file.close()
    return found if found is not None and found.journal == number else None


class SyncedEndFile:
    """The writing side; on the thread that syncs."""

    def __init__(self, disk: Disk, number: int, epoch: int, seed: int) -> None:
        self._disk = disk
        self._number = number
        self.epoch = epoch
        self.seed = seed
        self._file: File | None = None

    def put(self, position: int) -> None:
        """Only when all before `position` is on disk. A disk that refuses leaves an older one, or none."""
        file, self._file = self._file, None
        with suppress(OSError):
            self._put(file, position)

    def lower(self, position: int) -> None:
        """Before bytes are cut on purpose: durable, since a later end that came back would call them lost."""
        file, self._file = self._file, None
        self._put(file, position).sync()

    def _put(self, file: File | None, position: int) -> File:
        if file is None:
            file = self._disk.open_in_place(synced_name(self._number))
        file.write_at(0, SyncedEnd(self._number, self.epoch, self.seed, position).sealed())
        self._file = file
        return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
