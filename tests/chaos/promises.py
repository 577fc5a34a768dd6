"""The oracle of the campaign: the ack table line by line, and what no event may do to any line.

A ledger of one line knows when each acknowledgement came and what a consumer saw. `owed` says what an event must leave;
`judge` holds a log that was read afterwards against it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from crash.ledger import Ledger, Place
from interop.clients.contract import Got

KILL, POWER = "kill", "power loss"


class Line(NamedTuple):
    """A line of the ack table on one node: what producers ask for and how their topic is flushed."""

    name: str
    acks: str
    flush: str = "commit"
    flush_ms: int = 200
    flush_messages: int | None = None

    @property
    def idempotent(self) -> bool:
        return self.acks == "all"

    @property
    def synced_first(self) -> bool:
        """Acknowledged, and visible, only when synced."""
        return self.acks == "all" and self.flush == "commit"

    def configs(self) -> dict[str, str]:
        configs = {"cairn.flush": self.flush, "flush.ms": str(self.flush_ms)}
        return configs if self.flush_messages is None else configs | {"flush.messages": str(self.flush_messages)}


LINES = {
    line.name: line
    for line in (
        Line("acks-0", "0"),
        Line("acks-1", "1"),
        Line("all-commit", "all"),
        Line("all-interval-ms", "all", "interval"),
        Line("all-interval-messages", "all", "interval", 60_000, 50),
        Line("all-none", "all", "none"),
    )
}


class Stamp(NamedTuple):
    """A number and when it was acknowledged or seen, on the monotonic clock."""

    number: int
    at: float


class Owed(NamedTuple):
    """What must be found after an event: records by offset, and the log start that was confirmed before."""

    records: dict[int, int]
    trimmed: int = 0


class Promises(Ledger):
    """The ledger of one line. `retried`: plain producers send again what was not answered, so numbers may repeat.

    `again`: how many more copies there may be of a number, because an idempotent producer began a new epoch before it
    was answered (cluster/epoch_watch.py).

    `refused`: writes were answered with errors. librdkafka makes its next request before it has the answer to the one
    under way, and sends it when that one is refused, so that a plain producer's records may change places.
    """

    def __init__(self, line: Line, *, retried: bool) -> None:
        super().__init__(idempotent=line.idempotent and retried)
        self.line = line
        self.retried = retried
        self.refused = False
        self.again: dict[Place, Counter[int]] = defaultdict(Counter)
        self.acked_at: dict[Place, dict[int, float]] = defaultdict(dict)
        self.seen: dict[Place, dict[int, Stamp]] = defaultdict(dict)
        self.trim_tried: dict[Place, int] = defaultdict(int)
        self.trim_confirmed: dict[Place, int] = defaultdict(int)
        self.problems: list[str] = []
        self.lock = threading.Lock()

    def note(self, place: Place, offset: int, number: int) -> None:
        with self.lock:
            before = self.acked[place].get(offset, number)
            if before != number:
                self.problems.append(f"{place}: offset {offset} acknowledged for {before} and for {number}")
            super().note(place, offset, number)
            self.acked_at[place][offset] = time.monotonic()

    def epoch_begun(self, since: Mapping[Place, int]) -> None:
        """By the producer of all numbers from these on."""
        with self.lock:
            for place, first in since.items():
                answered = set(self.acked[place].values())
                self.again[place].update(number for number in range(first, self.sent[place]) if number not in answered)

    def saw(self, place: Place, offset: int, number: int) -> None:
        """A consumer got it."""
        with self.lock:
            before = self.seen[place].get(offset)
            if before is not None and before.number != number:
                self.problems.append(f"{place}: offset {offset} was read as {before.number} and as {number}")
            self.seen[place][offset] = before or Stamp(number, time.monotonic())

    def owed(self, place: Place, event: str, at: float, slack: float) -> Owed:
        """All that this event, at that time, may not have taken. Ask before the log is read: others go on.

        A deadline of the table begins when a record was written, so at the latest when it was acknowledged or read.
        `slack` is what a busy machine may be late.
        """
        trimmed = self.trim_confirmed[place]
        with self.lock:
            known = {
                offset: Stamp(number, self.acked_at[place].get(offset, at))
                for offset, number in self.acked[place].items()
            }
            known |= {offset: stamp for offset, stamp in self.seen[place].items() if offset not in known}
        if event == KILL or self.line.synced_first:
            return Owed({offset: stamp.number for offset, stamp in known.items()}, trimmed)
        if self.line.flush == "none":
            return Owed({}, trimmed)
        latest = at - slack - self.line.flush_ms / 1000
        bounds = [offset for offset, stamp in known.items() if stamp.at < latest]
        if self.line.flush_messages is not None:
            counted = [offset for offset, stamp in known.items() if stamp.at < at - slack]
            bounds += [offset - self.line.flush_messages for offset in counted]
        bound = max(bounds, default=-1)
        return Owed({offset: stamp.number for offset, stamp in known.items() if offset <= bound}, trimmed)

    def judge(self, place: Place, start: int, log: list[Got], owed: Owed) -> list[str]:
        """What the log of one partition, from its start to its end, breaks; [] is what we want."""
        numbers = [int((record.value or b"").rstrip(b".")) for record in log]
        offsets = [record.offset for record in log]
        found = [text for text in self.problems if f"{place}" in text]
        if offsets != list(range(start, start + len(log))):
            found.append(f"{place}: offsets are not dense from {start} on")
        found += self._misplaced(place, start, dict(zip(offsets, numbers, strict=True)), owed)
        if any(number >= self.sent[place] for number in numbers):
            found.append(f"{place}: holds numbers that were never sent")
        numbers = self._without_copies(place, numbers)
        if self.idempotent:
            first = 0 if start == 0 else numbers[0] if numbers else 0
            if numbers != list(range(first, first + len(numbers))):
                found.append(f"{place}: numbers are doubled, missing or out of order")
        elif self.retried and self.line.acks != "0":
            firsts = list(dict.fromkeys(numbers))
            if firsts != sorted(firsts) and not self.refused:
                found.append(f"{place}: records are out of order")
        elif not self.refused and any(one >= next_one for one, next_one in zip(numbers, numbers[1:], strict=False)):
            found.append(f"{place}: records are doubled or out of order")
        return found

    def _without_copies(self, place: Place, numbers: list[int]) -> list[int]:
        """Without those behind the first one that may be there."""
        left, met, kept = Counter(self.again[place]), set[int](), list[int]()
        for number in numbers:
            if number in met and left[number]:
                left[number] -= 1
            else:
                kept.append(number)
            met.add(number)
        return kept

    def _misplaced(self, place: Place, start: int, at: dict[int, int], owed: Owed) -> list[str]:
        found = []
        tried = self.trim_tried[place]
        if not owed.trimmed <= start <= tried:
            found.append(f"{place}: starts at {start}; deleted to {owed.trimmed}, asked to delete to {tried}")
        lost = [offset for offset in owed.records if offset >= start and offset not in at]
        if lost:
            found.append(f"{place}: {len(lost)} records lost that were promised, offsets {min(lost)} to {max(lost)}")
        told = self.told(place) | owed.records
        moved = [offset for offset, number in told.items() if offset in at and at[offset] != number]
        if moved:
            found.append(f"{place}: {len(moved)} records are not what was told, first offset {min(moved)}")
        return found

    def told(self, place: Place) -> dict[int, int]:
        """What is at each offset if anything is: it was acknowledged there, or read."""
        with self.lock:
            return dict(self.acked[place]) | {offset: stamp.number for offset, stamp in self.seen[place].items()}

    def settle(self, place: Place, end: int) -> int:
        """After a judged loss: what lay behind the end is nobody's any more; returns how many acknowledged ones."""
        with self.lock:
            gone = [offset for offset in self.acked[place] if offset >= end]
            for offset in gone:
                del self.acked[place][offset]
                self.acked_at[place].pop(offset, None)
            for offset in [offset for offset in self.seen[place] if offset >= end]:
                del self.seen[place][offset]
        return len(gone)
