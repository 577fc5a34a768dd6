"""The splitter's end of the socket to its broker: orders in, reports out, and the one question that waits."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable

from cairnmq.broker.storage_loop.splitter_messages import Ask, Inbox, Order, Report, Specs, framed, orders
from cairnmq.storage.api.splitting import QueueSpec


class BrokerGone(Exception):
    """The other end of the socket closed."""


def polled(link: socket.socket) -> Callable[[float], bool]:
    """Waits so many seconds at most until there is something to read; says whether there is."""
    poll = select.poll()  # select() takes no descriptor from 1024 on, and the broker hands us its number
    poll.register(link, select.POLLIN)
    return lambda seconds: bool(poll.poll(seconds * 1000))


class BrokerLink:
    """`is_readable` waits for the socket, so many seconds at most. `waiting`: orders that have arrived and were not
    obeyed yet."""

    def __init__(self, link: socket.socket, is_readable: Callable[[float], bool]) -> None:
        self._link = link
        self._is_readable = is_readable
        self._inbox = Inbox()
        self.waiting: deque[Order] = deque()

    def send(self, report: Report) -> None:
        self._link.sendall(framed(report))

    def receive(self, timeout: float) -> None:
        if timeout > 0 and self.waiting:
            timeout = 0
        if self._is_readable(timeout):
            data = self._link.recv(1 << 20)
            if not data:
                raise BrokerGone
            self.waiting.extend(orders(self._inbox.feed(data)))

    def resolve(self, queue_ids: list[int]) -> list[QueueSpec]:
        """Asks the broker; other orders that arrive meanwhile wait."""
        self.send(Ask(queue_ids))
        held: list[Order] = []
        while True:
            while self.waiting:
                order = self.waiting.popleft()
                if isinstance(order, Specs):
                    self.waiting.extendleft(reversed(held))
                    return order.specs()
                held.append(order)
            self.receive(60.0)
