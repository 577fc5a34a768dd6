"""Facts go to the journal first and into memory second, in the order in which they were decided."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from cairnmq.errors import Fault

KeyedRecord: TypeAlias = tuple[str, bytes, bytes | None]
Stored: TypeAlias = Callable[[Fault | None], None]  # called with None once it is durable, else with what went wrong
Put: TypeAlias = Callable[[Sequence[KeyedRecord], Stored], None]  # never calls back before it has returned


class Moved(Fault):
    """Another broker leads the journal from here on: what was on its way may or may not be in it."""

    def __init__(self) -> None:
        super().__init__("another broker leads the journal")


def _one_slot(fact: KeyedRecord) -> int:
    return 0


class FactLog:
    """Applies nothing before it is durable, and nothing before what was submitted earlier to the same slot: replay
    keeps that order. No decision is about two slots."""

    def __init__(
        self, put: Put, apply: Callable[[KeyedRecord], None], slot_of: Callable[[KeyedRecord], int] = _one_slot
    ) -> None:
        self._put = put
        self._apply = apply
        self._slot_of = slot_of
        self._turns: dict[int, deque[_Turn]] = {}
        self._moved = False

    def submit(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        """`stored` is called when the facts, which are of one slot, are durable and applied, or failed; then nothing
        was applied."""
        if self._moved:
            stored(Moved())
            return
        turn = _Turn(facts, stored, self._slot_of(facts[0]))
        self._turns.setdefault(turn.slot, deque()).append(turn)
        self._put(facts, partial(self._ended, turn))

    def by_slot(self, facts: Iterable[KeyedRecord]) -> list[list[KeyedRecord]]:
        """Facts of any slots as `submit` takes them."""
        slots: dict[int, list[KeyedRecord]] = {}
        for fact in facts:
            slots.setdefault(self._slot_of(fact), []).append(fact)
        return list(slots.values())

    def drop(self) -> None:
        """Nothing is put or applied any more, whatever becomes known of it later; who waits hears of it now."""
        self._moved = True
        slots, self._turns = self._turns, {}
        self._apply = _applied_nowhere  # storage may know this log for a while
        for turn in (turn for turns in slots.values() for turn in turns):
            turn.facts, stored, turn.stored = (), turn.stored, _told
            stored(Moved())

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not any(self._turns.values())

    async def commit(self, facts: Sequence[KeyedRecord]) -> None:
        """The same for who can wait, with facts of any slots; raises what went wrong with some of them."""
        waiting = [self._stored(some) for some in self.by_slot(facts)]
        fault = next((told for told in [await each for each in waiting] if told is not None), None)
        if fault is not None:
            try:
                raise fault
            finally:
                del fault, waiting  # it knows this frame: a circle would wait for the collector, with the request in it

    def _stored(self, facts: Sequence[KeyedRecord]) -> asyncio.Future[Fault | None]:
        future: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

        def stored(fault: Fault | None) -> None:
            if not future.done():
                future.set_result(fault)

        self.submit(facts, stored)
        return future

    def _ended(self, turn: _Turn, fault: Fault | None) -> None:
        if self._moved:
            return
        turn.done = True
        if fault is not None:
            turn.facts = ()
            turn.stored(fault)
            turn.stored = _told
        turns = self._turns[turn.slot]
        while turns and turns[0].done and not self._moved:  # whoever hears of one may be the last
            first = turns.popleft()
            for fact in first.facts:
                self._apply(fact)
            first.stored(None)


class _Turn:
    __slots__ = ("facts", "stored", "slot", "done")

    def __init__(self, facts: Sequence[KeyedRecord], stored: Stored, slot: int) -> None:
        self.facts = facts
        self.stored = stored
        self.slot = slot
        self.done = False


def _applied_nowhere(fact: KeyedRecord) -> None:
    """What the facts were about is gone."""


def _told(fault: Fault | None) -> None:
    """Who waited has heard of the failure already."""
