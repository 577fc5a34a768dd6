"""Requests that wait for a journal: a line for each level of the ack table, in the order of positions."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.ack_policy import SYNCED, AckLevel

Released = Callable[[bool], None]  # True: the level is reached; False: the journal could not do it
Line = deque[tuple[int, Released]]


class AckLines:
    """One journal's."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._written: Line = deque()
        self._synced: Line = deque()
        self._certain: Line = deque()

    def when(self, level: AckLevel, position: int, released: Released) -> None:
        (self.when_synced if level is SYNCED else self.when_written)(position, released)

    def when_certain(self, level: AckLevel, position: int, released: Released) -> None:
        """Like `when`, but False says that the entry is not in the journal, and never will be."""
        (self.when_synced_for_certain if level is SYNCED else self.when_written)(position, released)

    def when_written(self, position: int, released: Released) -> None:
        if self._journal.end >= position:
            released(True)
        else:
            self._written.append((position, released))

    def when_synced(self, position: int, released: Released) -> None:
        """A position that was staged earlier (a log start that is there already) goes before others that wait: after
        them it would not hear of its sync if theirs never comes."""
        line = self._synced
        if self._journal.synced >= position:
            released(True)
        elif line and line[-1][0] > position:
            line.insert(bisect_right(line, position, key=_position), (position, released))
        else:
            line.append((position, released))

    def when_synced_for_certain(self, position: int, released: Released) -> None:
        """What is written when a sync fails may turn out to be there, so it is waited for."""
        if self._journal.synced >= position:
            released(True)
        else:
            self._certain.append((position, released))

    def written_to(self, position: int) -> None:
        _release(self._written, position)

    def synced_to(self, position: int) -> None:
        _release(self._synced, position)
        _release(self._certain, position)

    def taken_back(self, start: int) -> None:
        """Nothing after `start` was written; the last to wait hears of it first."""
        for line in (self._written, self._synced, self._certain):
            lost = [released for position, released in line if position > start]
            kept = [waits for waits in line if waits[0] <= start]
            line.clear()
            line.extend(kept)
            for released in reversed(lost):
                released(False)

    def give_up(self) -> None:
        """The journal has stopped: nothing is written or synced any more. What is certain is not known yet."""
        for line in (self._written, self._synced):
            while line:
                line.popleft()[1](False)


def _position(waits: tuple[int, Released]) -> int:
    return waits[0]


def _release(line: Line, position: int) -> None:
    while line and line[0][0] <= position:
        line.popleft()[1](True)
