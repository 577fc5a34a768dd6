"""Producers wait, in order, while the splitter's backlog is at its cap; they are never refused for it. In a cluster the
backlog or the disk of an in-sync follower holds them up, too (R34).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from cairnmq.storage.api.serving import Engine


class Backlog:
    """One store's; runs on the loop thread. A request waits for the journals that it writes to, and for requests before
    it that wait for one of these: so each journal's batches keep their order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[tuple[frozenset[int], Callable[[], None]]] = deque()
        self._held: dict[int, Sequence[int]] = {}  # journal -> followers that have too little room

    def _is_full(self, journal: int) -> bool:
        path = self._engine.paths.get(journal)
        return journal in self._held or (path is not None and self._engine.full(path))

    @property
    def full(self) -> bool:
        """At its cap in any journal, or requests wait already: ask `holds_up`, or call `when_room`."""
        return bool(self._waiting) or any(map(self._is_full, self._engine.paths))

    def holds_up(self, journals: Collection[int]) -> bool:
        """Whether a request that writes to these must wait: call `when_room`."""
        return any(map(self._is_full, journals)) or any(not one.isdisjoint(journals) for one, _ in self._waiting)

    def when_room(self, resume: Callable[[], None], journals: Collection[int] | None = None) -> None:
        """In these journals; None: in all."""
        self._waiting.append((frozenset(self._engine.paths if journals is None else journals), resume))

    def give_room(self) -> None:
        """There may be room: a round was split, a setting changed, or a journal stopped, which refuses producers."""
        at, blocked = 0, set[int]()
        while at < len(self._waiting) and not blocked >= self._engine.paths.keys():
            journals, resume = self._waiting[at]
            if journals.isdisjoint(blocked) and not any(map(self._is_full, journals)):
                del self._waiting[at]
                resume()
            else:
                blocked |= journals
                at += 1

    # ------------------------------------------------------------------------------------------------- in a cluster

    def hold(self, journal: int, followers: Sequence[int]) -> None:
        """Producers of a led journal wait for these brokers; none: for nobody any more."""
        if followers:
            self._held[journal] = followers
        elif self._held.pop(journal, None) is not None:
            self.give_room()

    def waits_for_followers(self, journal: int) -> bool:
        """Whether somebody waits who would not, if all followers had room."""
        path = self._engine.paths.get(journal)
        if journal not in self._held or (path is not None and self._engine.full(path)):
            return False
        return any(journal in journals for journals, _ in self._waiting)
