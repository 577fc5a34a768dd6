"""Facts on their way, and the answers that wait for them: answers about one key leave in the order of its decisions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from cairnmq.broker.coordination.fact_log import Fact, FactLog
from cairnmq.errors import Fault

log = logging.getLogger("cairnmq.broker")

A = TypeVar("A")


class _Write(Generic[A]):
    """Facts of a key on their way, and the answers that wait for them. `stored` is None until it is known."""

    __slots__ = ("waiting", "stored")

    def __init__(self, waiting: Iterable[tuple[Callable[[A | None], None], A]]) -> None:
        self.waiting = list(waiting)
        self.stored: bool | None = None


class _Writes(Generic[A]):
    """The writes of one key, in the order of its decisions. `failed`: its live state is not what is stored."""

    __slots__ = ("queue", "failed")

    def __init__(self) -> None:
        self.queue: deque[_Write[A]] = deque()
        self.failed = False


class OrderedWrites(Generic[A]):
    """`put_back` is called with a key whose facts could not be stored, when nothing of it is on its way any more."""

    def __init__(self, what: str, facts: FactLog, put_back: Callable[[str], None]) -> None:
        self._what = what
        self._facts = facts
        self._put_back = put_back
        self._writes: dict[str, _Writes[A]] = {}
        self._settling: list[asyncio.Future[None]] = []

    def submit(self, key: str, facts: Sequence[Fact], waiting: Iterable[tuple[Callable[[A | None], None], A]]) -> None:
        """Each of `waiting` is called with its answer when the facts, and those submitted before, are durable; with
        None if they cannot be stored."""
        under_way = self._writes.get(key)
        if facts:
            write = _Write(waiting)
            if under_way is None:
                under_way = self._writes[key] = _Writes()
            under_way.queue.append(write)
            self._facts.submit(facts, partial(self._ended, key, write))
        elif under_way is not None and under_way.queue:
            under_way.queue[-1].waiting += waiting
        else:
            for deliver, answer in waiting:
                deliver(answer)

    @property
    def busy(self) -> bool:
        return bool(self._writes)

    async def settled(self) -> None:
        """Returns when nothing is on its way; what a disk refuses to sync stays on its way."""
        while self._writes:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(settled)
            await settled

    def _ended(self, key: str, write: _Write[A], fault: Fault | None) -> None:
        if fault is not None:
            log.error("%s %s: %s", self._what, key, fault)
        write.stored = fault is None
        self._release(key)

    def _release(self, key: str) -> None:
        """Answers whose turn has come. A failure may become known before earlier facts are stored: it waits for them,
        and the key is put back only when nothing of it is on its way, so that it ends as what is stored."""
        under_way = self._writes.get(key)
        if under_way is None:
            return  # a delivery below let another write finish first
        while under_way.queue and under_way.queue[0].stored is not None:
            write = under_way.queue.popleft()
            under_way.failed = under_way.failed or not write.stored
            for deliver, answer in write.waiting:
                deliver(answer if write.stored else None)
        if not under_way.queue:
            del self._writes[key]
            if under_way.failed:
                self._put_back(key)
        if not self._writes:
            while self._settling:
                self._settling.pop().set_result(None)
