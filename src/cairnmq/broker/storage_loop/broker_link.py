"""The splitter's end of the socket to its broker: orders in, reports out, and the one question that waits."""

from __future__ import annotations

import select
import socket
from collections import deque

from cairnmq.broker.storage_loop.splitter_messages import Ask, Inbox, Order, Report, Specs, framed, orders
from cairnmq.storage.api.splitting import QueueSpec


class BrokerGone(Exception):
    """The other end of the socket closed."""


class BrokerLink:
    """`waiting`: orders that have arrived and were not obeyed yet."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._poll = select.poll()  # select() takes no descriptor from 1024 on, and the broker hands us its number
        self._poll.register(link, select.POLLIN)
        self._inbox = Inbox()
        self.waiting: deque[Order] = deque()

    def send(self, report: Report) -> None:
        self._link.sendall(framed(report))

    def receive(self, timeout: float) -> None:
        if timeout > 0 and self.waiting:
            timeout = 0
        if self._poll.poll(timeout * 1000):
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
