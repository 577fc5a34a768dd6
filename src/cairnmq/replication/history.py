"""Which epoch wrote which part of a journal: where a follower and its leader part (KIP-101, 279, 595)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct


class EpochEnd(Struct, frozen=True, gc=False):
    """An epoch, and the position at which it ends in one replica's journal."""

    epoch: int
    end: int


class EpochHistory:
    """The first position of each epoch, both ascending, and the end of all."""

    __slots__ = ("_epochs", "_starts", "end")

    def __init__(self, starts: Iterable[tuple[int, int]] = (), end: int = 0) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.end = 0
        for epoch, start in starts:
            self.begin(epoch, start)
        self.extend(end)

    @property
    def last_epoch(self) -> int:
        """Of the last entry; 0 of an empty journal."""
        return self._epochs[-1] if self._epochs else 0

    def starts(self) -> list[tuple[int, int]]:
        """Every epoch with its first position."""
        return list(zip(self._epochs, self._starts, strict=True))

    def begin(self, epoch: int, start: int) -> None:
        """The next bytes are of this epoch. Epochs never fall, and no bytes are skipped."""
        assert epoch >= self.last_epoch and start >= self.end, (epoch, start, self.starts(), self.end)
        if epoch != self.last_epoch:
            self._epochs.append(epoch)
            self._starts.append(start)
        self.end = start

    def extend(self, end: int) -> None:
        """More bytes of the last epoch."""
        assert end >= self.end
        self.end = end

    def cut(self, end: int) -> None:
        """Forgets all from `end` on."""
        assert end <= self.end
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()
        self.end = end

    def end_of(self, epoch: int) -> EpochEnd:
        """The largest epoch that is at most this one, and where it ends here: where the next one begins."""
        at = bisect_right(self._epochs, epoch)
        if not at:
            return EpochEnd(0, self._starts[0] if self._starts else self.end)
        return EpochEnd(self._epochs[at - 1], self._starts[at] if at < len(self._starts) else self.end)

    def reaches(self, epoch: int) -> bool:
        """Whether this epoch, or one before it, is among those that are known: earlier ones were removed with the
        beginning of the journal."""
        return bool(self._epochs) and epoch >= self._epochs[0]

    def parting(self, last_epoch: int, end: int) -> EpochEnd | None:
        """A leader's question about a follower whose last entry is of `last_epoch` and ends at `end`: None if this
        journal begins with the follower's, else the last epoch that both may have, and its end here."""
        known = self.end_of(last_epoch)
        if known.epoch == last_epoch and end <= known.end:
            return None
        return known

    def cut_for(self, known: EpochEnd) -> int:
        """A follower's reply to that: how much of its own journal it keeps before it asks again. Without that epoch it
        drops its later ones and asks about the one before: an end of another epoch may lie within one of its entries.
        """
        own = self.end_of(known.epoch)
        return min(own.end, known.end) if own.epoch == known.epoch else own.end
