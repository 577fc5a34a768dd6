"""Work on the log of one queue in small steps, between the splitter's rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

from cairnmq.errors import Fault
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import SplitRecords


class Abandoned(Exception):
    """The queue changed under the work: it begins again another time."""


class CannotCompact(Fault):
    """The log of one queue cannot be worked on, and that is no damage: the queue is left alone for a while."""


class QueueJob(ABC):
    """`step` until it says that it is done."""

    def __init__(self, records: SplitRecords, queue: SplitQueue) -> None:
        self.records = records
        self.queue = queue
        self.disk = records.read_disk
        self.is_over = False
        self.came_further = False
        self._work = self._run()

    def step(self, max_bytes: int) -> bool:
        """Reads about `max_bytes`; True when all is done, or given up."""
        read = 0
        try:
            self._look()
            for size in self._work:
                read += size
                if read >= max_bytes:
                    return False
        except Abandoned:
            self._abandon()
        except Exception:
            self._abandon()
            raise
        self.is_over = True
        return True

    def _abandon(self) -> None:
        self.is_over = True
        self._work.close()
        self._drop_files()

    def _look(self) -> None:
        """Abandoned if what the work began with is not there any more."""
        queue = self.queue
        if self.records.queues.get(queue.spec.queue_id) is not queue or queue.log is None:
            raise Abandoned

    @abstractmethod
    def _run(self) -> Generator[int, None, None]:
        """Yields bytes read, now and then."""

    @abstractmethod
    def _drop_files(self) -> None:
        """Those that were not given to a swap."""
