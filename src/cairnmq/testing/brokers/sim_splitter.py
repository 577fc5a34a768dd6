"""The splitter process of a simulated broker: its real main loop, which waits inside its calls, on a `SimThread`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from cairnmq.broker.storage_loop.broker_link import BrokerGone, BrokerLink
from cairnmq.broker.storage_loop.splitter_messages import Report
from cairnmq.broker.storage_loop.splitter_process import SplitterMachine, SplitterProcess
from cairnmq.testing.brokers.sim_process import PROCESS
from cairnmq.testing.brokers.sim_socket import SimNetwork, SimSocket
from cairnmq.testing.brokers.sim_thread import Killed, SimThread, current
from cairnmq.testing.sim_disk import SimDisk

_KILLED = -9
_pids = itertools.count(100_000)


class _Link(BrokerLink):
    """`observe` is told of each report before it is sent."""

    def __init__(self, link: Any, is_readable: Callable[[float], bool], observe: Callable[[Report], None]) -> None:
        super().__init__(link, is_readable)
        self._observe = observe

    def send(self, report: Report) -> None:
        self._observe(report)
        super().send(report)


class SimSplitter:
    """One process. `link` is the broker's end of the socket. It dies with the broker."""

    def __init__(self, network: SimNetwork, name: str, machine: SplitterMachine) -> None:
        self.pid = next(_pids)
        self.link, self._own = SimSocket.pair(network, (name, 1), (name, 2))
        self.failure: BaseException | None = None  # a defect; its end is noticed by the broker as any other
        self._loop = network.loop
        self._machine = machine
        self._code: int | None = None
        self._steps_left = 0  # 0: nothing strikes it
        self._never_told: type[Report] | None = None
        self._thread = SimThread(self._work, self._waits, self._ended)
        self._timer = self._loop.call_later(self._loop.delay(), self._go_on)
        self._broker = PROCESS.get()
        if self._broker is not None:
            self._broker.belongings[self] = None

    # ------------------------------------------------------------------------------------------- as the broker sees it

    def poll(self) -> int | None:
        return self._code

    def wait(self) -> int:
        assert self._code is not None, "it runs, and nobody would go on"
        return self._code

    def kill(self) -> None:
        if self._code is None:
            self._rest()
            self._thread.kill()

    def close(self) -> None:
        """Its broker has ended."""
        self.kill()

    def die_within(self, disk: SimDisk, steps: int) -> None:
        """After so many operations of its disk and reports more: in the middle of one, or before one is sent."""
        self._steps_left = steps
        before = disk.observe

        def strike(disk: SimDisk) -> None:
            if before is not None:
                before(disk)
            if current() is self._thread:
                self._step()

        disk.observe = strike

    def die_before(self, kind: type[Report]) -> None:
        """When it has done what the next report of this kind would tell."""
        self._never_told = kind

    def _reports(self, report: Report) -> None:
        if type(report) is self._never_told:
            raise Killed
        self._step()

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left == 0:
            raise Killed

    # --------------------------------------------------------------------------------------------------- on its thread

    def _work(self) -> None:
        link: Any = self._own
        SplitterProcess(_Link(link, self._is_readable, self._reports), self._machine).run()

    def _is_readable(self, seconds: float) -> bool:
        self._thread.wait(seconds)
        return self._own.is_readable

    # --------------------------------------------------------------------------------------------------- on the loop's

    def _waits(self, seconds: float) -> None:
        if seconds <= 0 or self._own.is_readable:
            self._timer = self._loop.call_later(self._loop.delay(), self._go_on)
        else:
            self._timer = self._loop.call_later(seconds, self._go_on)
            self._loop.add_reader(self._own, self._go_on)

    def _go_on(self) -> None:
        self._rest()
        self._thread.go_on()

    def _rest(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._own)

    def _ended(self, _: object, error: BaseException | None) -> None:
        self._code = 0 if error is None else _KILLED if isinstance(error, Killed) else 1
        if error is not None and not isinstance(error, Killed | BrokerGone | SystemExit):
            self.failure = error
        self._own.close()
        if self._broker is not None:
            self._broker.belongings.pop(self, None)
