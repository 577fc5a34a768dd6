"""A cluster of which processes are paused and machines suspended, while producers of acks=1 go on sending to them.

What they sent waits, and is looked at before the process can know that another one leads. Only its lease holds it back.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairnmq.testing.replicas.broker_process import BrokerProcess
from cairnmq.testing.replicas.judge import Acks
from cairnmq.testing.replicas.lease_process import Contacts, LeaseProcess
from cairnmq.testing.replicas.machine import Machine
from cairnmq.testing.replicas.world import ReplicaWorld, Shape


class LeaseWorld(ReplicaWorld):
    """As its base, with leases that matter."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.contacts = Contacts()

    def _draw(self) -> Shape:
        shape = super()._draw()
        return replace(shape, acks=tuple(dict.fromkeys((Acks.ONE, *shape.acks))), pauses=True)

    def _process(self, machine: Machine) -> BrokerProcess:
        return LeaseProcess(machine, self.shared, self.contacts)

    def _takes_requests(self, process: BrokerProcess) -> bool:
        """Also while it is paused: connections stay open."""
        return process.alive

    def _kinds(self) -> dict[Callable[[], None], bool]:
        return super()._kinds() | {self._suspend: True}

    def _suspend(self) -> None:
        process = self.shared.processes[self._any()]
        assert isinstance(process, LeaseProcess)
        if process.alive and not process.paused:
            process.suspend()
            self.schedule.after(self.random.choice([300, 2_500, 6_000]), process.resume)
