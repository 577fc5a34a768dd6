"""A machine for brokers of a simulation: clocks, threads, disks and random numbers of its own, all from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

from cairnmq.broker.runtime import Executor, Runtime
from cairnmq.broker.storage_loop.splitter_process import SplitterMachine
from cairnmq.testing.brokers.sim_loop import SimExecutor, SimLoop
from cairnmq.testing.brokers.sim_socket import SimNetwork
from cairnmq.testing.brokers.sim_splitter import SimSplitter
from cairnmq.testing.brokers.sim_thread import sleep
from cairnmq.testing.sim_disk import SimDisk

DATE_MS = 1_795_000_000_000  # of the world's beginning
JOURNAL_DIR, DATA_DIR = "data/journal", "data"


class SimMachine:
    """Its disks outlive the processes that run on it. `name` is its address."""

    def __init__(self, loop: SimLoop, network: SimNetwork, name: str, seed: int) -> None:
        self.loop = loop
        self.network = network
        self.name = name
        self.random = Random(f"{name} of {seed}")
        self.journal_disk, self.data_disk = (
            SimDisk(Random(f"{name}/journal of {seed}")),
            SimDisk(Random(f"{name}/data of {seed}")),
        )
        self.splitters: list[SimSplitter] = []

    def runtime(self) -> Runtime:
        """For one process."""
        return Runtime(
            **self._clocks(),
            boot_ms=self.steady_ms,
            executor=self._executor,
            random_bits=self.random.getrandbits,
            random_bytes=self.random.randbytes,
            uuid=lambda: str(UUID(int=self.random.getrandbits(128), version=4)),
            start_splitter=self._start_splitter,
            connect=self._connect,
        )

    def lose(self, random: Random, *, power: bool) -> None:
        """What the next process finds on the disks, after a kill or a power loss."""
        for name in ("journal_disk", "data_disk"):
            disk: SimDisk = getattr(self, name)
            setattr(self, name, disk.crash(random) if power else disk.kill(random))

    def wall_ms(self) -> int:
        return DATE_MS + self.steady_ms()

    def steady_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _clocks(self) -> dict[str, Any]:
        return {"wall_ms": self.wall_ms, "steady_ms": self.steady_ms, "seconds": self.loop.time, "sleep": sleep}

    def _executor(self, name: str, threads: int) -> Executor:
        return SimExecutor(self.loop, name, threads, may_wait=name == "metadata")

    def _start_splitter(self, lock_fds: Sequence[int]) -> tuple[Any, Any]:
        machine = SplitterMachine(
            **self._clocks(),
            disk={JOURNAL_DIR: self.journal_disk, DATA_DIR: self.data_disk}.__getitem__,
            random_bytes=self.random.randbytes,
            set_niceness=lambda value: None,
            open_files_max=lambda: 64,
        )
        splitter = SimSplitter(self.network, self.name, machine)
        self.splitters.append(splitter)
        return splitter, splitter.link

    async def _connect(self, host: str, port: int) -> Any:
        return await self.network.connect(host, port, (self.name, 0))
