"""What producers were promised, to be held against the log: the oracle of the crash tests."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from interop.clients.contract import Got


class Place(NamedTuple):
    topic: str
    partition: int


class Ledger:
    """Numbers 0, 1, 2, ... sent to each partition, and the offsets at which they were acknowledged."""

    def __init__(self, idempotent: bool) -> None:
        self.idempotent = idempotent
        self.sent: dict[Place, int] = defaultdict(int)
        self.acked: dict[Place, dict[int, int]] = defaultdict(dict)

    def note(self, place: Place, offset: int, number: int) -> None:
        """An acknowledgement came."""
        self.acked[place][offset] = number

    def findings(self, place: Place, log: list[Got]) -> list[str]:
        """What the log of one partition breaks; [] is what we want. `log` is everything from the log start on."""
        numbers = [int((record.value or b"").rstrip(b".")) for record in log]
        offsets = [record.offset for record in log]
        start = offsets[0] if offsets else 0
        found = []
        if offsets != list(range(start, start + len(log))):
            found.append(f"{place}: offsets are not dense")
        at = dict(zip(offsets, numbers, strict=True))
        acked = {offset: number for offset, number in self.acked[place].items() if offset >= start}
        lost = [number for offset, number in acked.items() if offset not in at]
        moved = [number for offset, number in acked.items() if offset in at and at[offset] != number]
        if lost:
            found.append(f"{place}: {len(lost)} acknowledged records lost, first number {min(lost)}")
        if moved:
            found.append(f"{place}: {len(moved)} acknowledged records moved, first number {min(moved)}")
        if self.idempotent:
            if len(set(numbers)) != len(numbers):
                found.append(f"{place}: {len(numbers) - len(set(numbers))} records doubled")
            first = numbers[0] if numbers and start else 0
            if numbers != list(range(first, self.sent[place])):
                found.append(f"{place}: not every number from {first} to {self.sent[place]}, once and in order")
        elif start == 0 and set(numbers) != set(range(self.sent[place])):
            found.append(f"{place}: numbers are missing or were never sent")
        return found
