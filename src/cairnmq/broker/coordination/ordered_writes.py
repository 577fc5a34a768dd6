"""Decisions on their way to the journal: responses and effects of one key follow in the order of its decisions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from cairnmq.broker.coordination.fact_log import FactLog, Moved
from cairnmq.decision import Decision, Ticket
from cairnmq.errors import Fault

log = logging.getLogger("cairnmq.broker")

R = TypeVar("R")
E = TypeVar("E")


def _nothing(subject: object) -> None:
    """For decisions that change nothing in memory before they are stored, and for those without effects."""


class _Write(Generic[R, E]):
    """What follows when the records of a decision are stored. `stored` is None until it is known."""

    __slots__ = ("responses", "effects", "stored")

    def __init__(self, decision: Decision[R, E]) -> None:
        self.responses = decision.responses
        self.effects = decision.effects
        self.stored: bool | None = None


class _Writes(Generic[R, E]):
    """The writes of one key, in the order of its decisions. `failed`: its live state is not what is stored."""

    __slots__ = ("queue", "failed")

    def __init__(self) -> None:
        self.queue: deque[_Write[R, E]] = deque()
        self.failed = False


class OrderedWrites(Generic[R, E]):
    """`carry_out` carries out an effect whose decision is stored. `put_back` is called with a key whose records
    could not be stored, when nothing of it is on its way any more."""

    def __init__(
        self,
        what: str,
        facts: FactLog,
        put_back: Callable[[str], None] = _nothing,
        carry_out: Callable[[E], None] = _nothing,
    ) -> None:
        self._what = what
        self._facts = facts
        self._put_back = put_back
        self._carry_out = carry_out
        self._writes: dict[str, _Writes[R, E]] = {}
        self._settling: list[asyncio.Future[None]] = []

    def submit(self, key: str, decision: Decision[R, E]) -> None:
        """Sends the responses and carries out the effects when the records, and those submitted before, are durable.
        If they cannot be stored, every response is None and no effect follows."""
        under_way = self._writes.get(key)
        if decision.records:
            write = _Write(decision)
            if under_way is None:
                under_way = self._writes[key] = _Writes()
            under_way.queue.append(write)
            self._facts.submit(decision.records, partial(self._ended, key, write))
        elif under_way is not None and under_way.queue:
            last = under_way.queue[-1]
            last.responses += decision.responses
            last.effects += decision.effects
        else:
            self._follow(decision.responses, decision.effects)

    def has(self, key: str) -> bool:
        """Whether something of this key is on its way."""
        return key in self._writes

    @property
    def busy(self) -> bool:
        return bool(self._writes)

    async def settled(self) -> None:
        """Returns when nothing is on its way; what a disk refuses to sync stays on its way."""
        while self._writes:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(settled)
            await settled

    def _ended(self, key: str, write: _Write[R, E], fault: Fault | None) -> None:
        if fault is not None and not isinstance(fault, Moved):
            log.error("%s %s: %s", self._what, key, fault)
        write.stored = fault is None
        self._release(key)

    def _release(self, key: str) -> None:
        """Responses whose turn has come. A failure may become known before earlier records are stored: it waits for
        them, and the key is put back only when nothing of it is on its way, so that it ends as what is stored."""
        under_way = self._writes.get(key)
        if under_way is None:
            return  # a delivery below let another write finish first
        while under_way.queue and under_way.queue[0].stored is not None:
            write = under_way.queue.popleft()
            if write.stored:
                self._follow(write.responses, write.effects)
            else:
                under_way.failed = True
                _respond([(ticket, None) for ticket, _ in write.responses])
        if not under_way.queue:
            del self._writes[key]
            if under_way.failed:
                self._put_back(key)
        if not self._writes:
            while self._settling:
                self._settling.pop().set_result(None)

    def _follow(self, responses: list[tuple[Ticket, R]], effects: list[E]) -> None:
        _respond(responses)
        for effect in effects:
            self._carry_out(effect)


def _respond(responses: list[tuple[Ticket, R]]) -> None:
    for ticket, response in responses:
        if callable(ticket):  # nobody waits for some: they came from this broker itself
            ticket(response)
