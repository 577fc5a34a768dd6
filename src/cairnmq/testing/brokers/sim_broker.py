"""A broker that is alone, as `server.py` puts it together, on a simulated machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

from cairnmq.broker.assembly import Broker, assemble
from cairnmq.broker.context import Node
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec
from cairnmq.broker.start_storage import engine_config
from cairnmq.errors import Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.settings.broker import broker_config
from cairnmq.storage.api.start import Engine, OwnerWitness, begin
from cairnmq.testing.brokers.sim_machine import DATA_DIR, JOURNAL_DIR, SimMachine
from cairnmq.testing.memory_store import MemoryState, MemoryStore
from cairnmq.types import Counters

PORT = 9092
CONNECTIONS_MAX = 100
DRAIN_SECONDS = 5.0
SETTINGS = {
    "cairn.checkpoint.interval.ms": "2000",
    "cairn.journal.segment.bytes": str(1 << 20),
    "cairn.reserve.bytes": str(1 << 16),
}


class SimBroker:
    """One life of the process. `metadata` outlives it, as the machine's disks do."""

    def __init__(self, machine: SimMachine, metadata: MemoryState, node_id: int = 1) -> None:
        self.machine = machine
        self.address = (machine.name, PORT)
        self._metadata = metadata
        self._node_id = node_id
        self._stack = AsyncExitStack()
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Until clients are accepted."""
        machine, stack, runtime = self.machine, self._stack, self.machine.runtime()
        config = broker_config(SETTINGS)
        assert not isinstance(config, Refusal), config
        catalog = Catalog(MemoryStore(self._metadata), node_id=self._node_id, random_bytes=runtime.random_bytes)
        catalog.load()
        catalog.name_cluster()
        stack.callback(catalog.close)
        disks = machine.journal_disk, machine.data_disk
        witness = OwnerWitness(disks[0], catalog.cluster_id, self._node_id)
        opened = OpenMetadata(catalog, runtime.executor("metadata", 1), config, witness)

        def keep(begun: Counters) -> None:
            catalog.make_slots(catalog.journals)
            witness.keep(catalog.counters())

        engine = Engine.open(
            *disks,
            all_queue_specs(catalog.image, config),
            journals=catalog.journals,
            begin=lambda known: begin(catalog, known, keep),
            seed=runtime.random_bits(32),
            config=engine_config(config, self._node_id),
            now_ms=runtime.wall_ms(),
            last_epoch=catalog.counters().epoch,
        )
        place = Address(*self.address)
        spec = ListenerSpec(PLAINTEXT, PLAINTEXT, place, place)
        storage = OpenStorage(engine, catalog.image.slots, JOURNAL_DIR, DATA_DIR)
        node = Node(self._node_id, None, catalog.cluster_id, (spec,))
        self.broker = assemble(opened, storage, node, runtime=runtime)
        stack.push_async_callback(self.broker.close)
        await self.broker.start()
        connections = ConnectionSet(self.broker.ctx, self.broker.router, Limits(), lambda: CONNECTIONS_MAX)
        listener = Listener(spec, connections)
        await listener.open(cast(Any, machine.network.bind(self.address)))
        stack.push_async_callback(close_all, [listener], connections, DRAIN_SECONDS)

    async def stop(self) -> None:
        """In order, as after a signal."""
        assert self.broker is not None
        self.broker.ctx.coordinators.drain()
        await self._stack.aclose()
        await asyncio.sleep(0)
        for splitter in self.machine.splitters:
            if splitter.failure is not None:
                raise splitter.failure
