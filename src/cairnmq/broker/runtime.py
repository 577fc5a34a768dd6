"""What a broker takes from the machine that it runs on, as one value (ADR 0033).

A broker that serves has the machine's own (`machine.py`). In a simulation time, threads, connections and random numbers
come from a seed.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor as Executor
from typing import Protocol

from cairnmq.broker.clocks import Clocks


class ChildProcess(Protocol):
    """A process of the broker."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None as long as it runs."""

    def wait(self) -> int:
        """Until it has ended."""

    def kill(self) -> None: ...


class Runtime(Clocks, frozen=True, kw_only=True, eq=False):
    """`boot_ms` is the clock of sessions and leases. `executor` makes one of a name with so many threads at most.
    `start_splitter` is given the descriptors that the process holds too; it returns the process and the broker's end of
    the socket between them. `connect` opens a connection to a host and port."""

    boot_ms: Callable[[], int]
    executor: Callable[[str, int], Executor]
    random_bits: Callable[[int], int]
    random_bytes: Callable[[int], bytes]
    uuid: Callable[[], str]
    start_splitter: Callable[[Sequence[int]], tuple[ChildProcess, socket.socket]]
    connect: Callable[[str, int], Awaitable[socket.socket]]
