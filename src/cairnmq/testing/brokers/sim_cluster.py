"""Three whole brokers under faults with producers, from one seed: killed, paused, without power, cut from each other.

One of them is struck at a time, so that the others can lead; `SimWorld` has the rest of the rules for one broker.
"""

from __future__ import annotations

import asyncio
from random import Random

from cairnmq.testing.brokers.sim_broker import PORT
from cairnmq.testing.brokers.sim_loop import SimLoop
from cairnmq.testing.brokers.sim_machine import SimMachine
from cairnmq.testing.brokers.sim_member import SimMember
from cairnmq.testing.brokers.sim_process import SimProcess
from cairnmq.testing.brokers.sim_socket import SimNetwork
from cairnmq.testing.brokers.sim_workload import Workload
from cairnmq.testing.brokers.sim_world import CALM_SECONDS, KILL, PAUSE, POWER, SPLITTER, START_SECONDS_MAX, Errors
from cairnmq.testing.memory_store import MemoryState
from cairnmq.testing.oracle import demand

BROKERS = 3
CUT = "cut"
FAULTS = (KILL, POWER, PAUSE, SPLITTER, CUT)
LOOKS = 120  # a second apart


class _Place:
    """A machine and the process on it."""

    def __init__(self, machine: SimMachine, state: MemoryState, number: int) -> None:
        self.machine = machine
        self.number = number
        self.process = SimProcess()
        self.gone: list[SimProcess] = []
        self._state = state

    def start(self) -> None:
        self.member = SimMember(self.machine, self._state, self.number)
        self.process = SimProcess()
        self.starting = self.process.run(self.machine.loop, self.member.start())

    def kill(self) -> None:
        self.process.kill()
        self.gone.append(self.process)


class ClusterWorld:
    """Which faults there are is drawn."""

    def __init__(self, seed: int, records_each: int = 30) -> None:
        self.random = Random(f"cluster faults of {seed}")
        self.loop = SimLoop(Random(f"loop of {seed}"))
        self.network = SimNetwork(self.loop)
        names = [f"broker-{number}" for number in range(1, BROKERS + 1)]
        machines = [SimMachine(self.loop, self.network, name, seed) for name in names]
        self.state = MemoryState(machines[0].steady_ms)
        self.places = [_Place(machine, self.state, number) for number, machine in enumerate(machines, 1)]
        self.faults = [fault for fault in FAULTS if self.random.random() < 0.6] or [KILL]
        self.struck: list[str] = []
        self.workload = Workload(self.random, self.network, [(name, PORT) for name in names], (-1,), records_each)

    def run(self) -> None:
        """Violation, or another exception, if something was not as it must be."""
        with Errors().heard(self.loop):
            try:
                self.loop.run_until_complete(self._live())
            finally:
                for place in self.places:
                    place.kill()
                    for process in place.gone:
                        process.bury()
                self.loop.close()

    async def _live(self) -> None:
        for place in self.places:
            place.start()
        await asyncio.gather(*(place.starting for place in self.places))
        await self.workload.create_topic()
        producing = asyncio.create_task(self.workload.produce())
        await self._strike(producing)
        async with asyncio.timeout(CALM_SECONDS):
            await producing
            for place in self.places:
                await place.starting
            await self._all_in_sync()
            await self.workload.judge()
        for place in self.places:
            for splitter in place.machine.splitters:
                if splitter.failure is not None:
                    raise splitter.failure

    # ---------------------------------------------------------------------------------------------------------- faults

    async def _strike(self, until: asyncio.Task[None]) -> None:
        while not until.done():
            await asyncio.wait([until], timeout=self.random.expovariate(1 / 1.5))
            fault, place = self.random.choice(self.faults), self.random.choice(self.places)
            self.struck.append(fault)
            if fault == PAUSE:
                place.process.pause()
                await asyncio.sleep(self.random.uniform(0.1, 8))
                self.loop.resume(place.process)
            elif fault == SPLITTER:
                place.machine.splitters[-1].kill()
            elif fault == CUT:
                await self._cut(place)
            else:
                place.kill()
                place.machine.lose(self.random, power=fault == POWER)
                await asyncio.sleep(self.random.expovariate(1 / 1.0))
                place.start()
            await self._restart()
            _, late = await asyncio.wait([place.starting], timeout=START_SECONDS_MAX)
            demand(not late, "a start took more than", START_SECONDS_MAX, "s")
            place.starting.result()

    async def _cut(self, place: _Place) -> None:
        """From the other brokers; the store and the clients are reached."""
        others = [each.machine.name for each in self.places if each is not place]
        for other in others:
            self.network.cut(place.machine.name, other)
        await asyncio.sleep(self.random.uniform(0.1, 8))
        for other in others:
            self.network.join(place.machine.name, other)

    async def _restart(self) -> None:
        """Brokers that must go back to their checkpoint, as their process would."""
        for place in self.places:
            demand(not place.member.reasons, "broker", place.number, "stops:", *place.member.reasons)
            if place.member.must_restart.is_set():
                place.kill()
                place.machine.lose(self.random, power=False)
                place.start()

    # ----------------------------------------------------------------------------------------------------------- judge

    async def _all_in_sync(self) -> None:
        """Every journal has a leader, and all replicas are in its ISR."""
        for _ in range(LOOKS):
            await self._restart()
            broker = self.places[0].member.broker
            if broker is not None and broker.cluster is not None:
                view = broker.cluster.report()
                states = [(each.journal, each.leader, len(each.isr), len(each.replicas)) for each in view.journals]
                if states and all(leader is not None and isr == replicas for _, leader, isr, replicas in states):
                    return
            await asyncio.sleep(1)
        demand(False, "not all replicas are in sync:", states)
