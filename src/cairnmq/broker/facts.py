"""Facts go to the journal first and into memory second, in the order in which they were decided."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

Fact: TypeAlias = tuple[str, bytes, bytes | None]


class FactLog:
    """Applies nothing before it is durable, and nothing before what was submitted earlier (replay keeps that order)."""

    def __init__(self, put: Callable[[list[Fact]], Awaitable[None]], apply: Callable[[Fact], None]) -> None:
        self._put = put
        self._apply = apply
        self._turns: deque[_Turn] = deque()

    async def commit(self, facts: Sequence[Fact]) -> None:
        """Returns when the facts are durable and applied; raises what the store raised, then nothing was applied."""
        if not facts:
            return
        turn = _Turn(facts)
        self._turns.append(turn)
        try:
            await self._put(list(facts))
        except BaseException:
            turn.facts = ()
            raise
        finally:
            turn.done = True
            self._advance()
        await turn.applied

    def _advance(self) -> None:
        while self._turns and self._turns[0].done:
            turn = self._turns.popleft()
            for fact in turn.facts:
                self._apply(fact)
            if not turn.applied.done():
                turn.applied.set_result(None)


class _Turn:
    __slots__ = ("facts", "done", "applied")

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        self.done = False
        self.applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
