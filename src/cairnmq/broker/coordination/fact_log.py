"""Facts go to the journal first and into memory second, in the order in which they were decided."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from cairnmq.errors import Fault

KeyedRecord: TypeAlias = tuple[str, bytes, bytes | None]
Stored: TypeAlias = Callable[[Fault | None], None]  # called with None once it is durable, else with what went wrong
Put: TypeAlias = Callable[[Sequence[KeyedRecord], Stored], None]  # never calls back before it has returned


class FactLog:
    """Applies nothing before it is durable, and nothing before what was submitted earlier (replay keeps that order)."""

    def __init__(self, put: Put, apply: Callable[[KeyedRecord], None]) -> None:
        self._put = put
        self._apply = apply
        self._turns: deque[_Turn] = deque()

    def submit(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        """`stored` is called when the facts are durable and applied, or failed; then nothing was applied."""
        turn = _Turn(facts, stored)
        self._turns.append(turn)
        self._put(facts, partial(self._ended, turn))

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not self._turns

    async def commit(self, facts: Sequence[KeyedRecord]) -> None:
        """The same for who can wait; raises what went wrong."""
        if not facts:
            return
        future: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

        def stored(fault: Fault | None) -> None:
            if not future.done():
                future.set_result(fault)

        self.submit(facts, stored)
        fault = await future
        if fault is not None:
            try:
                raise fault
            finally:
                del fault, future  # it knows this frame: a circle would wait for the collector, with the request in it

    def _ended(self, turn: _Turn, fault: Fault | None) -> None:
        turn.done = True
        if fault is not None:
            turn.facts = ()
            turn.stored(fault)
            turn.stored = _told
        while self._turns and self._turns[0].done:
            first = self._turns.popleft()
            for fact in first.facts:
                self._apply(fact)
            first.stored(None)


class _Turn:
    __slots__ = ("facts", "stored", "done")

    def __init__(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        self.facts = facts
        self.stored = stored
        self.done = False


def _told(fault: Fault | None) -> None:
    """Who waited has heard of the failure already."""
