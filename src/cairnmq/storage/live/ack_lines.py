"""Requests that wait for a journal: a line for each level of the ack table, in the order of positions."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.ack_policy import DURABLE, WRITTEN, AckLevel

# True: the level is reached; False: the journal could not do it, or is led elsewhere now (`WritePath.stop_code`)
Released = Callable[[bool], None]
Line = deque[tuple[int, Released]]


class AckLines:
    """One journal's. `alone`: it has one replica, so what is written is replicated, and one line is both."""

    def __init__(self, journal: Journal, *, alone: bool = True) -> None:
        self._journal = journal
        self._written: Line = deque()
        self._replicated: Line = self._written if alone else deque()
        self._durable: Line = deque()
        self._certain: Line = deque()

    def when(self, level: AckLevel, position: int, released: Released) -> None:
        if level is DURABLE:
            self.when_durable(position, released)
        elif level is WRITTEN:
            self.when_written(position, released)
        else:
            self.when_replicated(position, released)

    def when_certain(self, level: AckLevel, position: int, released: Released) -> None:
        """Like `when`, but False says that the entry is not in the journal, and never will be. Only the end of this
        leadership leaves that open: then its journal's next leader knows."""
        if level is DURABLE:
            self.when_durable_for_certain(position, released)
        else:
            self.when(level, position, released)

    def when_written(self, position: int, released: Released) -> None:
        if self._journal.end >= position:
            released(True)
        else:
            self._written.append((position, released))

    def when_replicated(self, position: int, released: Released) -> None:
        """Most come in the order of their positions; a marker that is there already may not."""
        if self._journal.replicated_end >= position:
            released(True)
        else:
            _insert(self._replicated, position, released)

    def when_durable(self, position: int, released: Released) -> None:
        """A position that was staged earlier (a log start that is there already) goes before others that wait: after
        them it would not hear of its sync if theirs never comes."""
        if self._journal.durable_end >= position:
            released(True)
        else:
            _insert(self._durable, position, released)

    def when_durable_for_certain(self, position: int, released: Released) -> None:
        """What is written when a sync fails may turn out to be there, so it is waited for."""
        if self._journal.durable_end >= position:
            released(True)
        else:
            self._certain.append((position, released))

    @property
    def durable_wanted(self) -> int:
        """The furthest position that somebody waits to be durable; 0: nobody waits."""
        return max((line[-1][0] for line in (self._durable, self._certain) if line), default=0)

    def written_to(self, position: int) -> None:
        _release(self._written, position)

    def replicated_to(self, position: int) -> None:
        _release(self._replicated, position)

    def durable_to(self, position: int) -> None:
        _release(self._durable, position)
        _release(self._certain, position)

    def taken_back(self, start: int) -> None:
        """Nothing after `start` was written; the last to wait hears of it first."""
        for line in self._all():
            lost = [released for position, released in line if position > start]
            kept = [waits for waits in line if waits[0] <= start]
            line.clear()
            line.extend(kept)
            for released in reversed(lost):
                released(False)

    def give_up(self) -> None:
        """The journal has stopped: nothing is written or synced any more. What is certain is not known yet."""
        for line in self._all():
            while line and line is not self._certain:
                line.popleft()[1](False)

    def led_elsewhere(self) -> None:
        """Nobody hears any more here what became of an entry, written or not."""
        self.taken_back(-1)

    def _all(self) -> list[Line]:
        middle = [] if self._replicated is self._written else [self._replicated]
        return [self._written, *middle, self._durable, self._certain]


def _insert(line: Line, position: int, released: Released) -> None:
    if line and line[-1][0] > position:
        line.insert(bisect_right(line, position, key=_position), (position, released))
    else:
        line.append((position, released))


def _position(waits: tuple[int, Released]) -> int:
    return waits[0]


def _release(line: Line, position: int) -> None:
    while line and line[0][0] <= position:
        line.popleft()[1](True)
