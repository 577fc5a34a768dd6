"""The metadata files as a start found them, which are put back if it is refused.

SQLite changes files that it only reads: a new file gets its tables, and the write-ahead log of a killed broker is moved
into the file and removed, with all that follows a damaged place in it. So until the metadata are compared with the
records, a copy of both is kept. After a clean stop there is no log, and nothing is copied.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from cairnmq.os_errors import text_of
from cairnmq.storage.api.start import RealDisk, put_aside

log = logging.getLogger("cairnmq.broker")

COPY = ".found"
_APPLICATION_ID = slice(68, 72)  # in SQLite's head; zero until our tables are there


class FoundMetadata:
    """Of one start, which ends with one of `put_back`, `put_aside` and `forget`."""

    def __init__(self, directory: str, name: str) -> None:
        self._disk = RealDisk(directory)
        self._directory = Path(directory)
        self._names = (name, f"{name}-wal")
        self._copies: list[str] = []

    def keep(self) -> None:
        """A disk without room for it does not keep the broker from starting."""
        self.forget()
        name, wal = (self._directory / each for each in self._names)
        has_log = wal.exists() and wal.stat().st_size > 0
        if not name.exists() or (not has_log and _has_tables(name)):
            return
        try:
            self._copies = [each + COPY for each in self._names if (self._directory / each).exists()]
            for copy in self._copies:
                shutil.copy2(self._directory / copy.removesuffix(COPY), self._directory / copy)
        except OSError as error:
            log.warning("%s: no safety copy could be made for this start: %s", self._names[0], text_of(error))
            self.forget()

    def put_back(self) -> None:
        """When SQLite has closed them."""
        for copy in self._copies:
            self._disk.rename(copy, copy.removesuffix(COPY))
        if self._copies:
            self._disk.sync_dir("")
        self._copies = []

    def put_aside(self, epoch: int) -> None:
        """Somebody accepts that they are not all there."""
        put_aside(self._disk, self._copies, epoch)
        self._copies = []

    def forget(self) -> None:
        """Also what a start left that was killed."""
        for name in self._names:
            self._disk.remove(name + COPY)
        self._copies = []


def _has_tables(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(_APPLICATION_ID.stop)[_APPLICATION_ID])
