"""What the ack table and the invariants promise, held against what happened. It knows no code of the core."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from cairnmq.replication.records import Member
from cairnmq.testing.replicas.machine import ModelEntry, ModelJournal


class Acks(Enum):
    """The lines of the ack table that differ."""

    ONE = "acks=1"
    INTERVAL = "acks=all, interval"
    COMMIT = "acks=all, commit"


class Acknowledged(Struct):
    """A record whose producer was told. `keepers`: replicas that have kept power since, or had it synced."""

    journal: int
    payload: int
    end: int
    acks: Acks
    keepers: set[int]


class Broken(AssertionError):
    """A promise was not kept."""


class Judge:
    """One for a world."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._durable: dict[int, list[ModelEntry]] = {}
        self._replicated: dict[int, list[ModelEntry]] = {}
        self._leaders: dict[tuple[int, int], object] = {}
        self.power_was_lost = False

    def told(self, journal: int, payload: int, end: int, acks: Acks, by: Iterable[Member]) -> None:
        """A producer was told that its record is stored, by these members."""
        keepers = {member.broker for member in by}
        self.acknowledged.append(Acknowledged(journal, payload, end, acks, keepers))

    def led_by(self, journal: int, epoch: int, process: object) -> None:
        """Invariant 14: at most one broker stages entries in an epoch of a journal."""
        other = self._leaders.setdefault((journal, epoch), process)
        if other is not process:
            raise Broken(f"two processes lead journal {journal} in epoch {epoch}")

    def saw_ends(self, journal: int, replica: ModelJournal, replicated: int, durable: int) -> None:
        """A leader counts this much as replicated, and as durable. What is durable never changes again; what is
        replicated changes only when power is lost."""
        self._hold(self._durable.setdefault(journal, []), replica, durable, f"the durable part of journal {journal}")
        if not self.power_was_lost:
            held = self._replicated.setdefault(journal, [])
            self._hold(held, replica, replicated, f"the replicated part of journal {journal}")

    @staticmethod
    def _hold(held: list[ModelEntry], replica: ModelJournal, end: int, what: str) -> None:
        have = held[-1].end if held else 0
        if end <= have:
            return
        for at, entry in enumerate(held[-3:], max(len(held) - 3, 0)):
            if at >= len(replica.entries) or replica.entries[at] != entry:
                raise Broken(f"{what} changed at {entry.start}")
        for entry in replica.entries[len(held) :]:
            if entry.end > end:
                break
            held.append(entry)

    def lost_power(self, broker: int, journals: dict[int, ModelJournal]) -> None:
        """Before the machine forgets what it had not synced."""
        self.power_was_lost = True
        for told in self.acknowledged:
            if broker in told.keepers and journals[told.journal].synced < told.end:
                told.keepers.discard(broker)

    def lost_bytes(self, broker: int, journal: int) -> None:
        """The disk of a machine was damaged."""
        for told in self.acknowledged:
            if told.journal == journal:
                told.keepers.discard(broker)

    def at_rest(self, journal: int, replicas: Iterable[ModelJournal]) -> None:
        """All faults are over, and everything has settled: all replicas are equal, and have what was promised."""
        first, *others = replicas
        for other in others:
            if other.entries != first.entries:
                raise Broken(f"replicas of journal {journal} differ")
        there = {entry.payload for entry in first.entries}
        if len(there - {0}) != sum(entry.payload != 0 for entry in first.entries):
            raise Broken(f"journal {journal} has a record twice")
        for told in self.acknowledged:
            if told.journal != journal or told.payload in there:
                continue
            if told.acks is Acks.COMMIT or (told.acks is Acks.INTERVAL and told.keepers):
                raise Broken(f"journal {journal} lost record {told.payload} of {told.acks.value}")
        for what, held in (("durable", self._durable), ("replicated", self._replicated)):
            part = held.get(journal, [])
            if (what == "durable" or not self.power_was_lost) and first.entries[: len(part)] != part:
                raise Broken(f"the {what} part of journal {journal} changed")
