"""A file that is given up when its disk is full, so that checkpoints, cuts and notes still find room there.

It is made again when there is room for it; writing goes on only behind that. One per journal, one on the read disk.
"""

from __future__ import annotations

import errno
from random import Random

from cairnmq.storage.files.disk import Disk, File

RESERVE_FILE = "reserve"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BLOCK_BYTES = 256 << 10


class Reserve:
    """Calls block; one owner."""

    def __init__(self, disk: Disk, directory: str, size: int = 0) -> None:
        self.disk = disk
        self.size = size
        self._name = f"{directory}/{RESERVE_FILE}" if directory else RESERVE_FILE

    def hold(self, beyond: int = 0) -> None:
        """Makes the file anew where there is room for it and for `beyond` more bytes; raises what the disk says, and
        leaves nothing, where not."""
        self.release()
        if self.size + beyond == 0:
            return
        file = self.disk.create(self._name)
        try:
            self._fill(file, self.size + beyond)
            file.sync()
            file.truncate(self.size)
        except OSError:
            self.release()
            raise
        finally:
            file.close()

    def release(self) -> None:
        self.disk.remove(self._name)

    def _fill(self, file: File, size: int) -> None:
        block = Random(1).randbytes(min(size, _BLOCK_BYTES))  # zeros may get no room, where the file system compresses
        while size > 0:
            size -= file.append([block[:size]])
