"""The splitter process of a simulated broker: its real main loop, which waits inside its calls.

So it has a thread, but only one of loop and splitter runs at any time: it is given its turn when something has arrived
or its wait is over, and the loop goes on when it waits again.
"""

from __future__ import annotations

import itertools
import threading

from cairnmq.broker.storage_loop.broker_link import BrokerGone, BrokerLink
from cairnmq.broker.storage_loop.splitter_process import SplitterMachine, SplitterProcess
from cairnmq.testing.brokers.sim_socket import SimNetwork, SimSocket

_KILLED = -9
_pids = itertools.count(100_000)


class _Killed(BaseException):
    """Ends the thread, wherever it waits."""


class SimSplitter:
    """One process. `link` is the broker's end of the socket."""

    def __init__(self, network: SimNetwork, name: str, machine: SplitterMachine) -> None:
        self.pid = next(_pids)
        self.link, self._own = SimSocket.pair(network, (name, 1), (name, 2))
        self.failure: BaseException | None = None  # a defect; its end is noticed by the broker as any other
        self._loop = network.loop
        self._machine = machine
        self._code: int | None = None
        self._wait = 0.0
        self._is_killed = False
        self._turn, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._timer = self._loop.call_later(self._loop.delay(), self._go_on)
        self._thread = threading.Thread(target=self._run, name="sim-splitter", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------------------------------------- as the broker sees it

    def poll(self) -> int | None:
        return self._code

    def wait(self) -> int:
        assert self._code is not None, "it runs, and nobody would go on"
        return self._code

    def kill(self) -> None:
        if self._code is None:
            self._is_killed = True
            self._go_on()

    # ---------------------------------------------------------------------------------------------------- on its thread

    def _run(self) -> None:
        self._turn.acquire()
        code = 0
        try:
            if not self._is_killed:
                SplitterProcess(BrokerLink(self._own, self._is_readable), self._machine).run()  # type: ignore[arg-type]
        except _Killed:
            code = _KILLED
        except (BrokerGone, SystemExit):
            code = 1
        except BaseException as error:  # noqa: BLE001 - told when the world is judged
            self.failure, code = error, 1
        self._code = code
        self._rest.release()

    def _is_readable(self, seconds: float) -> bool:
        self._wait = seconds
        self._rest.release()
        self._turn.acquire()
        if self._is_killed:
            raise _Killed
        return self._own.is_readable

    # -------------------------------------------------------------------------------------------------- on the loop's

    def _go_on(self) -> None:
        """Until it waits again, or has ended."""
        self._timer.cancel()
        self._loop.remove_reader(self._own)
        self._turn.release()
        self._rest.acquire()
        if self._code is not None:
            self._thread.join()
            self._own.close()
            return
        if self._wait <= 0 or self._own.is_readable:
            self._timer = self._loop.call_later(self._loop.delay(), self._go_on)
        else:
            self._timer = self._loop.call_later(self._wait, self._go_on)
            self._loop.add_reader(self._own, self._go_on)
