"""What was asked elsewhere may be overtaken: a guard tells whether its answer still counts (docs/transactions.md).

Whoever leads a queue or coordinates a group opens one before he asks the coordinator of a transaction. A marker of that
transaction, or the end of its offsets, closes it, and so does the loss of leadership.
"""

from __future__ import annotations

from typing import TypeAlias

from cairnmq.transactions.messages import Producer
from cairnmq.transactions.turned_away import TurnedAway

Place: TypeAlias = int | str  # a queue, or a group


class Guard:
    """Of one question about one producer and place."""

    __slots__ = ("epoch", "is_open", "key")

    def __init__(self, key: tuple[Place, int], epoch: int) -> None:
        self.key = key
        self.epoch = epoch
        self.is_open = True


class Guards:
    """All that are open on this broker, and batches that could not be asked about, or in vain."""

    def __init__(self) -> None:
        self.turned_away = TurnedAway()
        self._open: dict[tuple[Place, int], list[Guard]] = {}

    def open(self, place: Place, producer: Producer) -> Guard:
        """Before the question. Whoever opens it closes it with `done`."""
        guard = Guard((place, producer.producer_id), producer.epoch)
        self._open.setdefault(guard.key, []).append(guard)
        return guard

    def done(self, guard: Guard) -> None:
        """The answer was used, or nobody waits for it."""
        guard.is_open = False
        several = self._open.get(guard.key)
        if several is not None and guard in several:
            several.remove(guard)
            if not several:
                del self._open[guard.key]

    def ended(self, place: Place, producer: Producer, *, raised: bool) -> None:
        """A transaction of this producer ends here: of this epoch, or of a lower one if the epoch was raised for it."""
        if isinstance(place, int):
            self.turned_away.forget(place, producer.producer_id)
        for guard in tuple(self._open.get((place, producer.producer_id), ())):
            if guard.epoch <= producer.epoch - raised:
                self.done(guard)

    def close_all(self) -> None:
        """This broker ceases to lead something: whoever asked asks again."""
        self.turned_away.forget_all()
        for several in list(self._open.values()):
            for guard in tuple(several):
                self.done(guard)

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))
