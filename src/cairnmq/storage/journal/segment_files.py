"""The files of one journal, and how many of them are open: every epoch begins one, and they stay for as long as a
replica may need them. So all but a few are closed when they are synced, and opened again when somebody reads there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import journal_segment

OPEN_MAX = 8  # of one journal, besides those that are being written or synced


class Segment:
    """One file of the journal. Only the last one grows."""

    __slots__ = ("base", "size", "synced_size", "name_synced", "cut", "has_asked", "_file", "_files")

    def __init__(self, files: SegmentFiles, base: int, file: File | None, size: int, *, synced: bool) -> None:
        """Without `file` it is opened when it is asked for."""
        self.base = base
        self.size = size
        self.synced_size = size if synced else 0
        self.name_synced = synced
        self.cut = False  # a failed write was cut off, and that is not synced
        self.has_asked = False  # for the next one to be made in advance
        self._file = file
        self._files = files

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self)
        return file

    @file.setter
    def file(self, file: File) -> None:
        self._file = file

    @property
    def is_idle(self) -> bool:
        """All of it is on disk, its name too."""
        return self.synced_size >= self.size and self.name_synced and not self.cut

    def let_go(self) -> None:
        """It closes when the last one who reads from it lets go, too."""
        self._file = None

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class SegmentFiles(list[Segment]):
    """Segments in order, and which of them but the last have open files. On any thread: readers may be on several."""

    def __init__(self, disk: Disk, number: int, segments: Iterable[Segment] = ()) -> None:
        super().__init__(segments)
        self._disk = disk
        self._number = number
        self._opened: deque[Segment] = deque()

    def index_of(self, position: int) -> int:
        """Of the segment that holds it; -1: it lies before the first."""
        return bisect_right(self, position, key=_base) - 1

    def open(self, segment: Segment) -> File:
        """For whoever reads there."""
        file = self._disk.open(journal_segment(self._number, segment.base))
        self._opened.append(segment)
        self.close_some()
        return file

    def rolled(self, segment: Segment) -> None:
        """It is the last one no more."""
        self._opened.append(segment)

    @property
    def are_many(self) -> bool:
        """More than may be open: a sync is due, which lets some be closed."""
        return len(self._opened) > 2 * OPEN_MAX

    def close_some(self) -> None:
        """The first that were opened, if they are synced: a file that is not must tell what became of its sync."""
        for _ in range(len(self._opened) - OPEN_MAX):
            try:
                segment = self._opened.popleft()
            except IndexError:
                return  # another thread is at it, too
            if segment.is_idle:
                segment.let_go()
            else:
                self._opened.append(segment)


def _base(segment: Segment) -> int:
    return segment.base
