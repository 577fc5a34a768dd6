"""Which queue logs hold their file open, within the limit of open files that the process has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.segments.queue_log import QueueLog

OPEN_FILES_MAX = 8000


class OpenLogs:
    """Half of the files are for them, a quarter for a checkpoint; packs, journals and all else have the rest."""

    def __init__(self, files_max: int) -> None:
        self._logs: dict[int, QueueLog] = {}  # the one used last at the end
        self._logs_max = max(1, min(files_max, OPEN_FILES_MAX) // 2)
        self._at_once = max(1, files_max // 4)

    def hold(self, queue_id: int, log: QueueLog) -> None:
        """Its file is open, and stays so for the next round: the one that was not used for the longest time is closed,
        and opened again when it is."""
        self._logs.pop(queue_id, None)
        self._logs[queue_id] = log
        if len(self._logs) > self._logs_max:
            self._logs.pop(next(iter(self._logs))).close_file()

    def forget(self, queue_id: int) -> None:
        log = self._logs.pop(queue_id, None)
        if log is not None:
            log.close_file()

    def parts(
        self, disk: Disk, files: Sequence[File], names: Sequence[str], directories: Sequence[str]
    ) -> Iterator[tuple[Sequence[File], Sequence[str]]]:
        """All of `files`, which are open, those with these names, and with the last of them the directories: in one
        part if so many may be opened at once."""
        for start in range(0, max(1, len(names)), self._at_once):
            end = start + self._at_once
            opened = [disk.open(name, write=True) for name in names[start:end]]
            yield [*files, *opened] if start == 0 else opened, directories if end >= len(names) else ()
            for file in opened:
                file.close()
