"""What a streaming query reads next. Decides; what it must know it asks of a view of the topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from cairnmq.client.errors import Absent
from cairnmq.client.records import EARLIEST
from cairnmq.spark.batch_plan import starting
from cairnmq.spark.byte_limit import Seen, records_within
from cairnmq.spark.errors import DataLoss
from cairnmq.spark.options import ReadOptions
from cairnmq.spark.progress import Progress, behind, capped, continued, deleted, limited, unknown
from cairnmq.spark.ranges import Range, ranges_between, tasks


class View(Protocol):
    """What the plan asks; topic_view.py asks a broker for it."""

    def topics(self, *, missing_is_fatal: bool = True) -> dict[str, tuple[str, tuple[int, ...]]]: ...

    def lookup(self, topic: str, partitions: Sequence[int], time: int) -> Mapping[int, int]: ...

    def latest(self, *, missing_is_fatal: bool = True) -> Progress: ...

    def wait_for_more(self, progress: Progress) -> None: ...

    def sample(self, positions: Mapping[str, Mapping[int, int]]) -> Mapping[str, Mapping[int, Seen]]: ...

    def publish(self, group: str, progress: Progress) -> None: ...


class StreamPlan:
    """Lives as long as the query's driver process."""

    def __init__(self, options: ReadOptions, view: View, clock: Callable[[], float]) -> None:
        self._options = options
        self._view = view
        self._clock = clock
        self._target: Progress | None = None
        self._published: Progress | None = None
        self._began_waiting: float | None = None
        self.newest: Progress | None = None  # what there was when it was last looked

    def initial(self) -> Progress:
        return starting(self._options, self._view.topics(), self._view.lookup)

    def stop_at_present(self) -> None:
        """AvailableNow: what comes from here on is for the next run."""
        self._target = self._view.latest(missing_is_fatal=False)

    def latest(self, start: Progress, *, everything: bool = False) -> Progress:
        """The end of the next micro-batch, `start` itself if there is none. All before `start` was processed.
        `everything`: limits do not count this time."""
        self.finished(start)
        begin, latest = self._look(start)
        if self._target is None and not self._is_enough(_records(begin, latest), everything):
            self._view.wait_for_more(latest)
            begin, latest = self._look(start)
        if not self._is_enough(_records(begin, latest), everything):
            return start
        self._began_waiting = None
        return limited(begin, latest, None if everything else self._most(begin, latest))

    def tasks(self, start: Progress, end: Progress) -> list[tuple[Range, ...]]:
        """Ranges of a micro-batch, which may have been planned by an earlier run."""
        begin = self._continued(start, end)
        return tasks(ranges_between(begin, end), self._options.min_partitions, self._options.max_records)

    def finished(self, progress: Progress) -> None:
        """Everything before this was processed: said to the group, if there is one."""
        if self._options.group is not None and progress != self._published:
            self._view.publish(self._options.group, progress)
            self._published = progress

    def _look(self, start: Progress) -> tuple[Progress, Progress]:
        self.newest = self._view.latest(missing_is_fatal=False)
        latest = self.newest if self._target is None else capped(self.newest, self._target)
        return self._continued(start, latest), latest

    def _continued(self, start: Progress, latest: Progress) -> Progress:
        first = {name: self._first(name, indexes, latest) for name, indexes in unknown(start, latest).items()}
        return continued(start, latest, first, self._options.fail_on_data_loss)

    def _first(self, name: str, indexes: Sequence[int], latest: Progress) -> Mapping[int, int]:
        """Of a topic that was there when `latest` was noted, perhaps by an earlier run."""
        try:
            return self._view.lookup(name, indexes, EARLIEST)
        except Absent:
            if self._options.fail_on_data_loss:
                raise DataLoss(deleted(name)) from None
            return latest.topics[name].offsets  # nothing is left of it

    def _most(self, begin: Progress, latest: Progress) -> int | None:
        """How many records a micro-batch may take."""
        limits = self._options.limits
        if limits.max_bytes is None:
            return limits.max_offsets
        left = behind(begin, latest)
        positions = {}
        for name, parts in left.items():
            waiting = [index for index, records in parts.items() if records]
            if waiting:
                with suppress(*self._passed_over):
                    first = self._view.lookup(name, waiting, EARLIEST)  # what is gone takes no bytes
                    offsets = begin.topics[name].offsets
                    positions[name] = {index: max(offsets[index], first[index]) for index in waiting}
        fitting = records_within(left, self._sample(positions), limits.max_bytes)
        return min((each for each in (limits.max_offsets, fitting) if each is not None), default=None)

    def _sample(self, positions: Mapping[str, Mapping[int, int]]) -> Mapping[str, Mapping[int, Seen]]:
        if not positions:
            return {}
        with suppress(*self._passed_over):
            return self._view.sample(positions)
        samples: dict[str, Mapping[int, Seen]] = {}
        for name, parts in positions.items():  # one of them was deleted a moment ago
            with suppress(*self._passed_over):
                samples.update(self._view.sample({name: parts}))
        return samples

    @property
    def _passed_over(self) -> tuple[type[Exception], ...]:
        """Of a topic that is only looked at: if it is gone, that is told when it is read."""
        return () if self._options.fail_on_data_loss else (Absent,)

    def _is_enough(self, records: int, everything: bool) -> bool:
        limits = self._options.limits
        if not records or everything or self._target is not None:
            return records > 0
        if limits.min_offsets is None or records >= limits.min_offsets:
            return True
        now = self._clock()
        if self._began_waiting is None:
            self._began_waiting = now
        return now - self._began_waiting >= limits.max_delay


def _records(begin: Progress, latest: Progress) -> int:
    return sum(sum(part.values()) for part in behind(begin, latest).values())
