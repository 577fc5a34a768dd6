"""The oracle of power cuts in a cluster: the ack table of docs/replication.md, line by line."""

from __future__ import annotations

from typing import NamedTuple

from chaos.promises import KILL, Line, Owed, Promises, Stamp
from crash.ledger import Place
from interop.clients.contract import Got

TOGETHER_SECONDS = 0.5
"""What all in-sync replicas must lose power within, so that a record that they had written is gone."""


class ClusterLine(Line):
    """With two replicas in sync at least."""

    __slots__ = ()

    def configs(self) -> dict[str, str]:
        return super().configs() | {"min.insync.replicas": "2"}


LINES = {
    line.name: line
    for line in (
        ClusterLine("all-commit", "all"),
        ClusterLine("all-interval", "all", "interval"),
        ClusterLine("all-none", "all", "none"),
        ClusterLine("one-commit", "1"),
        ClusterLine("one-interval", "1", "interval"),
        ClusterLine("one-none", "1", "none"),
    )
}


class Event(NamedTuple):
    """What happened to the journal of a partition."""

    lost_at: float | None = None
    """When the first broker lost power, if all that were in sync lost it; None: one of them kept it."""
    one_leader: bool = True
    """Nobody else has led since the round began."""


class Replicated(Promises):
    """The ledger of one line. Of acks=1 a new leader may put other records where nobody has read yet."""

    def __init__(self, line: Line, *, retried: bool) -> None:
        super().__init__(line, retried=retried)
        self.alone = line.acks == "1"

    def note(self, place: Place, offset: int, number: int) -> None:
        if self.alone:
            with self.lock:
                self.acked[place].pop(offset, None)
        super().note(place, offset, number)

    def told(self, place: Place) -> dict[int, int]:
        if not self.alone:
            return super().told(place)
        with self.lock:
            return {offset: stamp.number for offset, stamp in self.seen[place].items()}

    def owed_after(self, place: Place, event: Event, slack: float) -> Owed:
        """What is visible is on all replicas that are in sync; so is what was acknowledged with acks=all."""
        if event.lost_at is None and (not self.alone or event.one_leader):
            return self.owed(place, KILL, 0.0, slack)
        with self.lock:
            known = dict(self.seen[place])
            if not self.alone:
                acked = self.acked[place].items()
                known |= {offset: Stamp(number, self.acked_at[place][offset]) for offset, number in acked}
        bound = max(known, default=-1)
        if event.lost_at is not None and not self.line.synced_first:
            latest = event.lost_at - TOGETHER_SECONDS - slack
            bound = max((offset for offset, stamp in known.items() if stamp.at < latest), default=-1)
        return Owed({offset: stamp.number for offset, stamp in known.items() if offset <= bound})

    def found(self, place: Place, log: list[Got]) -> int:
        """After the judgement: all this was read, and what is not there is nobody's any more. Returns how many
        acknowledged records that is."""
        gone = 0
        if not self.line.synced_first:
            gone = self.settle(place, len(log))
            numbers = {record.offset: number_of(record) for record in log}
            with self.lock:
                for offset in [each for each, number in self.acked[place].items() if numbers[each] != number]:
                    del self.acked[place][offset]
                    gone += 1
        for record in log:
            self.saw(place, record.offset, number_of(record))
        return gone


def number_of(record: Got) -> int:
    return int((record.value or b"").rstrip(b"."))
