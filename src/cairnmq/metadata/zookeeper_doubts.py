"""Changes of one process whose responses were lost, and what `rev` says about them. Pure."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.metadata.store import Away, InDoubt, Made
from cairnmq.metadata.zookeeper_tree import Root
from cairnmq.types import Epoch


class _Doubt(Struct):
    """It was made by the next version of `rev`, or will not be."""

    version: int
    outcome: Made | Away | None = None


class Doubts:
    """`settle` is to be called with everything that is read of `rev`: the own next transaction takes the place of the
    last one there."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.number = 0  # of the last transaction
        self._doubts: dict[int, _Doubt] = {}

    def next_number(self) -> int:
        """For a transaction that is about to be sent."""
        self.number += 1
        return self.number

    def add(self, version: int, reason: str) -> InDoubt:
        """Nobody knows whether the last transaction followed this version of `rev`."""
        self._doubts[self.number] = _Doubt(version)
        return InDoubt(reason, self.number)

    def settle(self, root: Root, version: int) -> None:
        """A later version says which transaction was the last one; what is not in it never will be."""
        for number, doubt in self._doubts.items():
            if doubt.outcome is None and version > doubt.version:
                last = root.writers.get(self.writer)
                if last is not None and last.number == number:
                    doubt.outcome = Made(last.revision, Epoch(last.epoch))
                else:
                    doubt.outcome = Away("the change did not arrive at ZooKeeper")

    def is_open(self, doubt: InDoubt) -> bool:
        """Whether it is still unknown what became of it."""
        return self.outcome(doubt) is None

    def outcome(self, doubt: InDoubt) -> Made | Away | None:
        """What became of it, if that is known."""
        return self._doubts[doubt.token].outcome
