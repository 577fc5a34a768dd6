"""A broker of a cluster on a simulated machine: its metadata are in a store that all machines share."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

from cairnmq.broker.assembly import Broker, assemble
from cairnmq.broker.cluster.cluster_node import Joined
from cairnmq.broker.context import Node
from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec, ServeOptions
from cairnmq.broker.start_cluster import join_storage, open_shared_metadata
from cairnmq.errors import Refusal
from cairnmq.settings.broker import broker_config
from cairnmq.testing.brokers.sim_broker import CONNECTIONS_MAX, DRAIN_SECONDS, PORT, SETTINGS
from cairnmq.testing.brokers.sim_machine import DATA_DIR, JOURNAL_DIR, SimMachine
from cairnmq.testing.memory_store import MemoryState, MemoryStore

INTERNAL_PORT = 9190
MEMBER_SETTINGS = {
    "cairn.log.level": "warning",  # it holds for the whole process of the simulation
    **SETTINGS,
    "cairn.session.ms": "2000",
    "cairn.journals.led": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class SimMember:
    """One life of the process. `state` is the store that outlives it."""

    def __init__(self, machine: SimMachine, state: MemoryState, node_id: int) -> None:
        self.machine = machine
        self.node_id = node_id
        self.broker: Broker | None = None
        self.must_restart = asyncio.Event()
        self.reasons: list[str] = []
        self._state = state
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """As `server.py` does, until clients are accepted."""
        machine, stack, runtime = self.machine, self._stack, self.machine.runtime()
        config = broker_config(MEMBER_SETTINGS, in_cluster=True)
        assert not isinstance(config, Refusal), config
        options = ServeOptions(
            data=DATA_DIR, node_id=self.node_id, metadata="zookeeper://simulated:2181/cairn", journal_dir=JOURNAL_DIR
        )
        directories: Any = SimDirectories(machine)
        internal = machine.network.bind((machine.name, INTERNAL_PORT))
        internal.listen()
        place = Address(machine.name, PORT)
        shared = await open_shared_metadata(
            stack,
            options,
            cast(DataDirectories, directories),
            config,
            client=place,
            internal=Address(machine.name, INTERNAL_PORT),
            runtime=runtime,
            open_store=lambda _: MemoryStore(self._state),
        )
        storage, member = await join_storage(
            cast(DataDirectories, directories),
            [],
            shared,
            node_id=self.node_id,
            progress=lambda scanned, whole: None,
            runtime=runtime,
        )
        spec = ListenerSpec(PLAINTEXT, PLAINTEXT, place, place)
        self.broker = assemble(
            shared.opened,
            storage,
            Node(self.node_id, None, shared.opened.catalog.cluster_id, (spec,)),
            runtime=runtime,
            joined=Joined(shared.store, shared.settings, shared.entry, member, cast(Any, internal)),
        )
        assert self.broker.cluster is not None
        self.broker.cluster.must_restart = self.must_restart.set
        self.broker.cluster.must_stop = self.reasons.append
        stack.push_async_callback(self.broker.close)
        await self.broker.start()
        connections = ConnectionSet(self.broker.ctx, self.broker.router, Limits(), lambda: CONNECTIONS_MAX)
        listener = Listener(spec, connections)
        await listener.open(cast(Any, machine.network.bind((machine.name, PORT))))
        stack.push_async_callback(close_all, [listener], connections, DRAIN_SECONDS)

    async def stop(self) -> None:
        """In order, as after a signal."""
        assert self.broker is not None
        await self.broker.hand_over()
        self.broker.ctx.coordinators.drain()
        await self._stack.aclose()


class SimDirectories:
    """The directories of a machine as `DataDirectories` has them."""

    journal, data = JOURNAL_DIR, DATA_DIR

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine

    def journal_disk(self) -> Any:
        return self._machine.journal_disk

    def data_disk(self) -> Any:
        return self._machine.data_disk
