"""A broker under faults with clients, from one seed: killed, paused, without power, its splitter killed alone.

What clients were told is judged by the ack table (docs/architecture.md): a record that was acknowledged is at its
offset, once, and each producer's records are in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from cairnmq.broker.storage_loop.splitter_messages import Checkpointed
from cairnmq.testing.brokers.sim_broker import PORT, SimBroker
from cairnmq.testing.brokers.sim_loop import SimLoop
from cairnmq.testing.brokers.sim_machine import SimMachine
from cairnmq.testing.brokers.sim_process import SimProcess
from cairnmq.testing.brokers.sim_socket import SimNetwork
from cairnmq.testing.brokers.sim_workload import Workload
from cairnmq.testing.memory_store import MemoryState
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_checks import check_verify

KILL, POWER, SPLITTER, PAUSE = "kill", "power", "splitter", "pause"
FAULTS = (KILL, POWER, SPLITTER, PAUSE)
START_SECONDS_MAX = 30.0
CALM_SECONDS = 600.0  # after the last fault everything is answered within it
SPLIT_LOOKS = 120  # a second apart


class Errors(logging.Handler):
    """Defects that a broker survives: it has noted them with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))

    @contextmanager
    def heard(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Meanwhile they are noted; Violation afterwards if there were any."""
        log = logging.getLogger()
        log.addHandler(self)
        loop.set_exception_handler(self._note)
        try:
            yield
        finally:
            log.removeHandler(self)
        demand(not self.found, *self.found)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"{context['message']}: {context.get('exception')!r}")


class FaultyWorld:
    """One machine. Which faults there are is drawn."""

    def __init__(self, seed: int, records_each: int = 40) -> None:
        self.random = Random(f"faults of {seed}")
        self.loop = SimLoop(Random(f"loop of {seed}"))
        self.network = SimNetwork(self.loop)
        self.machine = SimMachine(self.loop, self.network, "broker-1", seed)
        self.metadata = MemoryState(self.machine.steady_ms)
        self.faults = [fault for fault in FAULTS if self.random.random() < 0.6] or [KILL]
        self.struck: list[str] = []
        # After a power loss the sequence of acks=1 may have a gap, which ends a producer with an id.
        acks = (-1,) if POWER in self.faults else (-1, 1)
        self.workload = Workload(self.random, self.network, [("broker-1", PORT)], acks, records_each)
        self.process = SimProcess()
        self.processes = [self.process]
        self._ends_at = 0.0
        self._broker: SimBroker | None = None

    def run(self) -> None:
        """Violation, or another exception, if something was not as it must be."""
        with Errors().heard(self.loop):
            try:
                self.loop.run_until_complete(self._live())
            finally:
                self.process.kill()
                for process in self.processes:
                    process.bury()
                self.loop.close()

    async def _live(self) -> None:
        await self._start()
        await self.workload.create_topic()
        producers = asyncio.create_task(self.workload.produce())
        strikes = asyncio.create_task(self._strike(producers))
        await strikes
        async with asyncio.timeout(CALM_SECONDS):
            await producers
            await self._judge()

    # ---------------------------------------------------------------------------------------------------------- faults

    async def _start(self) -> None:
        """A new process; it may be struck before it serves."""
        self.process = SimProcess()
        self.processes.append(self.process)
        self._broker = SimBroker(self.machine, self.metadata)
        self._starting = self.process.run(self.loop, self._broker.start())

    async def _strike(self, until: asyncio.Task[None]) -> None:
        """Until all is produced, with calm times in between."""
        while not until.done():
            await asyncio.wait([until], timeout=self.random.expovariate(1 / 1.5))
            fault = self.random.choice(self.faults)
            self.struck.append(fault)
            if fault == PAUSE:
                self.process.pause()
                await asyncio.sleep(self.random.uniform(0.1, 8))
                self.loop.resume(self.process)
            elif fault == SPLITTER:
                self._strike_splitter()
            else:
                self.process.kill()
                self.machine.lose(self.random, power=fault == POWER)
                await asyncio.sleep(self.random.expovariate(1 / 0.5))
                await self._start()
            await self._calm()

    def _strike_splitter(self) -> None:
        """Where it waits, or in the middle of a round or a checkpoint."""
        if not self.machine.splitters:
            return
        splitter = self.machine.splitters[-1]
        way = self.random.random()
        if way < 0.3:
            splitter.kill()
        elif way < 0.5:
            splitter.die_before(Checkpointed)
        else:
            splitter.die_within(self.machine.data_disk, self.random.randrange(1, 40))

    async def _calm(self) -> None:
        """Sometimes long enough for a start to be over, so that work gets done."""
        if self.random.random() < 0.7:
            _, late = await asyncio.wait([self._starting], timeout=START_SECONDS_MAX)
            demand(not late, "a start took more than", START_SECONDS_MAX, "s")
            self._starting.result()

    # ----------------------------------------------------------------------------------------------------------- judge

    async def _judge(self) -> None:
        """Of the broker that runs, and of what it leaves."""
        await self._starting
        await self._all_split()
        await self.workload.judge()
        await self._in_process(self._stop())
        for splitter in self.machine.splitters:
            if splitter.failure is not None:
                raise splitter.failure
        check_verify(self.machine.journal_disk, self.machine.data_disk, {})

    async def _all_split(self) -> None:
        """Whatever has become of the splitters: one goes on."""
        assert self._broker is not None and self._broker.broker is not None
        store = self._broker.broker.ctx.store
        for _ in range(SPLIT_LOOKS):
            if not any(journal.split_lag for journal in store.stats().journals):
                return
            await asyncio.sleep(1)
        demand(False, "not everything is split:", *store.stats().reasons)

    async def _stop(self) -> None:
        assert self._broker is not None
        await self._broker.stop()

    async def _in_process(self, work: Coroutine[Any, Any, None]) -> None:
        await self.process.run(self.loop, work)
