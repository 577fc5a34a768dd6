"""Positions in partitions of any topics, moved on by what is read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from cairnmq.cli.offset_spec import AT, TIME, Bounds, OffsetSpec, find_bounds_of, place, stop
from cairnmq.cli.terminal import warn
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.records import Fetched

NOTHING_TO_READ_SECONDS = 0.2


class Reader:
    """Reads from `start` of each partition; with `until`, each partition to an end of its own."""

    def __init__(
        self, client: Client, start: OffsetSpec, until: OffsetSpec | None = None, *, read_committed: bool = False
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._client = client
        self._start = start
        self._until = until
        self._read_committed = read_committed
        self._ends: dict[TopicPartition, int] = {}  # of those whose end is known
        self._unread: set[str] = set()  # what was told already

    def add(
        self, places: Iterable[TopicPartition], committed: Mapping[TopicPartition, int] | None = None,
        start: OffsetSpec | None = None,
    ) -> None:  # fmt: skip
        """Reads these too: from where a group stands, else from `start`, else from where all begin."""
        start = start or self._start
        known = committed or {}
        for where, bounds in self._bounds(list(places), start).items():
            self.positions[where] = known[where] if where in known else place(start, bounds)
            if start.kind == AT and where not in known and self.positions[where] != start.value:
                held = f"holds offsets {bounds.start} to {bounds.end - 1}" if bounds.end > bounds.start else "is empty"
                warn(f"{where} {held}; reading from {self.positions[where]}")
            if self._until is not None and self._until.kind != TIME:
                self._ends[where] = stop(self._until, bounds)

    def drop(self, places: Iterable[TopicPartition]) -> None:
        for where in places:
            self.positions.pop(where, None)
            self._ends.pop(where, None)

    @property
    def finished(self) -> bool:
        """All partitions were read to their ends."""
        return self._until is not None and not self._active()

    def read(self) -> Iterator[tuple[TopicPartition, Record]]:
        """One round of fetching; each record is handed out once, its position already moved past it."""
        self._find_late_ends()
        wanted: dict[str, dict[int, int]] = {}
        for where, position in self._active().items():
            wanted.setdefault(where.topic, {})[where.partition] = position
        if not wanted:
            time.sleep(NOTHING_TO_READ_SECONDS)
            return
        for fetched in self._client.fetch(wanted, read_committed=self._read_committed):
            where = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._move_into_range(where)
            elif fetched.error:
                from cairnmq.client.errors import Refused

                raise Refused(fetched.error, f"partition {where}")
            else:
                yield from self._records(where, fetched)
        for refused in self._client.session.unread:
            if refused.where not in self._unread:
                self._unread.add(refused.where)
                warn(f"{refused}; reading the others and retrying")

    def _active(self) -> dict[TopicPartition, int]:
        """Partitions that are still read, and from where."""
        return {
            w: position for w, position in self.positions.items() if w not in self._ends or position < self._ends[w]
        }

    def _records(self, where: TopicPartition, fetched: Fetched) -> Iterator[tuple[TopicPartition, Record]]:
        end = self._ends.get(where)
        for batch, counts in fetched.judged():
            for record in decode_batch(batch) if counts else ():
                if end is not None and record.offset >= end:
                    self.positions[where] = end
                    return
                if record.offset >= self.positions[where]:
                    self.positions[where] = record.offset + 1
                    yield where, record
            # Markers and records that compaction removed leave no record to move past.
            self.positions[where] = max(self.positions[where], read_header(batch).last_offset + 1)

    def _find_late_ends(self) -> None:
        """Where a time ends a partition is known when that time has come."""
        if self._until is None or self._until.kind != TIME or time.time() * 1000 < self._until.value:
            return
        open_ones = [where for where in self.positions if where not in self._ends]
        for where, bounds in self._bounds(open_ones, self._until).items():
            self._ends[where] = stop(self._until, bounds)

    def _bounds(self, places: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, Bounds]:
        return find_bounds_of(self._client, places, spec, read_committed=self._read_committed) if places else {}

    def _move_into_range(self, where: TopicPartition) -> None:
        bounds = self._bounds([where], self._start)[where]
        position = self.positions[where]
        self.positions[where] = bounds.start if position < bounds.start else bounds.end
        warn(f"{where} no longer holds offset {position}; continuing at {self.positions[where]}")
