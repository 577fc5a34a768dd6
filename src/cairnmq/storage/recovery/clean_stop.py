"""`clean-stop.json`: the last process ended in order, and everything that it wrote is on disk and split.

It is written as the very last step of a stop, and removed durably before the first byte is appended after a start. So
a stop without order never finds one of an earlier stop; and if it should, neither the epoch nor the ends fit.

It lies in the data directory: whoever asks for it may have lost the disk of the journals.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.disk import Disk, Unreadable

CLEAN_STOP = "clean-stop.json"


class CleanStop(Struct, frozen=True):
    """`epoch`: the broker epoch of the process that stopped. `ends`: where each journal ended, all of it on disk; and
    split, of journals with one replica."""

    epoch: int
    ends: dict[int, int]

    def counts(self, last_epoch: int, ends: dict[int, int]) -> bool:
        """Nobody has begun since, and everything is there. `last_epoch`: the last that the metadata gave out."""
        return self.epoch == last_epoch and self.ends == ends

    def is_whole(self, ends: dict[int, int]) -> bool:
        """Everything is there, of the journals that are still hosted. New ones are empty."""
        return all(self.ends.get(number, 0) == end for number, end in ends.items())


def was_clean(stop: CleanStop | None, last_epoch: int, ends: dict[int, int]) -> bool:
    return stop is not None and stop.counts(last_epoch, ends)


def read_clean_stop(disk: Disk) -> CleanStop | None:
    """None: the last stop was none in order, or nobody can tell."""
    if not disk.exists(CLEAN_STOP):
        return None
    file = disk.open(CLEAN_STOP)
    try:
        data = bytes(file.read(0, file.size()))
        return msgspec.json.decode(data, type=CleanStop) if sealed_json.holds(data) else None
    except (Unreadable, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    finally:
        file.close()


def write_clean_stop(disk: Disk, stop: CleanStop) -> None:
    """Durable on return."""
    disk.replace(CLEAN_STOP, sealed_json.seal(stop))


def forget_clean_stop(disk: Disk) -> None:
    """Durable on return: from now on bytes may be appended."""
    if disk.exists(CLEAN_STOP):
        disk.remove(CLEAN_STOP)
        disk.sync_dir("")
