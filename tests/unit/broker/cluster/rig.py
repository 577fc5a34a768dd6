"""Brokers of one cluster in one process and one event loop: real metadata, journals, links and elections. They have no
clients and no splitters.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cairnmq.broker.assembly import Broker, assemble
from cairnmq.broker.clocks import wall_ms
from cairnmq.broker.cluster.cluster_node import ClusterNode, Joined
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.cluster.nearest_reads import NearestReads
from cairnmq.broker.cluster.replicas import Replicas
from cairnmq.broker.context import Node
from cairnmq.broker.data_directories import DataDirectories, lock_directories
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec, ServeOptions
from cairnmq.broker.start_cluster import SharedMetadata, join_storage, open_shared_metadata
from cairnmq.broker.storage_loop.store import Store
from cairnmq.metadata.image import Topic
from cairnmq.metadata.topics import CreateTopic
from cairnmq.replication.records import JournalRecord
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import Placed
from unit.broker.rig import batch, until

RESERVE_BYTES = 1 << 16
SESSION_MS = 6000  # longer than this machine's loop stands still; who is dropped is missed earlier (R35)
SETTINGS = {
    "cairn.journals.led": "1",
    "cairn.reserve.bytes": str(RESERVE_BYTES),
    "cairn.session.ms": str(SESSION_MS),
    "cairn.log.level": "warning",  # as it is for other tests, since it holds for the whole process
}


class OneBroker:
    """A life of a broker's process, without a process. `settings` come over those of all."""

    def __init__(self, number: int, directory: Path, **settings: str) -> None:
        self.number = number
        self.data = directory / f"broker{number}"
        self.metadata = directory / "cluster.db"
        self.restarts = 0  # that it has asked for
        self.stop_reasons: list[str] = []  # why it must stop
        self._settings = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
        self._stack = AsyncExitStack()
        self._is_up = False

    @property
    def options(self) -> ServeOptions:
        rack = f"rack-{self.number}"
        return ServeOptions(data=str(self.data), node_id=self.number, metadata=f"sqlite:{self.metadata}", rack=rack)

    async def open_metadata(self, stack: AsyncExitStack, internal: Address) -> SharedMetadata:
        config = broker_config(self._settings, in_cluster=True)
        assert isinstance(config, BrokerConfig), config
        directories = DataDirectories.of(self.options)
        client = Address("127.0.0.1", 9000 + self.number)
        return await open_shared_metadata(
            stack, self.options, directories, config, client=client, internal=internal, runtime=MACHINE
        )

    async def start(self) -> None:
        """As server.serve does."""
        stack, options = self._stack, self.options
        locks = lock_directories(options)
        for lock in locks:
            stack.callback(lock.close)
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        stack.callback(bound.close)
        self.shared = await self.open_metadata(stack, Address(*bound.getsockname()[:2]))
        storage, member = await join_storage(
            DataDirectories.of(options),
            [],  # no splitter that would hold the locks too
            self.shared,
            node_id=self.number,
            progress=lambda scanned, whole: None,
            runtime=MACHINE,
        )
        address = Address("127.0.0.1", 9000 + self.number)
        listener = ListenerSpec(PLAINTEXT, PLAINTEXT, address, address)
        self.was_clean = storage.engine.was_clean
        self.broker: Broker = assemble(
            self.shared.opened,
            storage,
            Node(self.number, None, self.shared.opened.catalog.cluster_id, (listener,)),
            runtime=MACHINE,
            joined=Joined(self.shared.store, self.shared.settings, self.shared.entry, member, bound),
        )
        self.node.must_restart = self._must_restart
        self.node.must_stop = self.stop_reasons.append
        for loop in self.store.loops.values():
            loop.start(RESERVE_BYTES)
        await self.broker.ctx.coordinators.start()
        await self.node.start()
        self._is_up = True

    def _must_restart(self) -> None:
        self.restarts += 1

    async def stop(self, *, hands_over: bool = True) -> None:
        """Cleanly."""
        if not self._is_up:
            await self._stack.aclose()
            return
        self._is_up = False
        if hands_over:
            await self.broker.hand_over()
        await self.broker.close()
        await self._stack.aclose()

    async def drop(self) -> None:
        """As if the process had been killed: nothing is handed over, its session stays until somebody ends it."""
        self._is_up = False
        node, replicas = self.node, self.replicas
        for task in [*node._tasks, *replicas._ticks]:
            task.cancel()
        await self.cut_off()
        await node._loop.close()
        if node._controller is not None:
            await node._controller.close()
        await replicas.installer.close()
        await replicas.fetchers.close()
        for replica in replicas.by_journal.values():
            await replica.close()
        await self.broker.ctx.coordinators.close()
        if self.catalog._keep_later is not None:
            self.catalog._keep_later.cancel()
        store = self.store
        store.loops.close()
        store.splitter._cancel_advance()
        store._cold.shutdown()
        store._unpacker.shutdown()
        self.shared.store._store._own.clear()  # type: ignore[attr-defined] # its sessions do not end with the file
        await self._stack.aclose()

    async def cut_off(self) -> None:
        """Nobody reaches it, and it reaches nobody. The store it does."""
        await self.node._listener.close()
        await self.node._links.close()

    def break_links(self) -> None:
        """Of this broker to others. They are opened again at once."""
        for link in list(self.node._links.data.links.values()):
            link.close("broken by a test")

    # ------------------------------------------------------------------------------------------------------ its parts

    @property
    def node(self) -> ClusterNode:
        assert self.broker.cluster is not None
        return self.broker.cluster

    @property
    def nearest(self) -> NearestReads:
        found = self.broker.ctx.nearest
        assert found is not None
        return found

    @property
    def replicas(self) -> Replicas:
        return self.node._replicas

    @property
    def store(self) -> Store:
        return self.broker.ctx.store

    @property
    def catalog(self):  # type: ignore[no-untyped-def]
        return self.broker.ctx.catalog

    @property
    def leadership(self):  # type: ignore[no-untyped-def]
        return self.broker.ctx.leadership

    def replica(self, journal: int) -> JournalReplica:
        return self.replicas.by_journal[journal]

    def record(self, journal: int) -> JournalRecord:
        """As this broker knows it."""
        return self.node._metadata.view().journals[journal].record

    def is_ready(self, journal: int) -> bool:
        return self.leadership.is_ready(journal)

    def end(self, journal: int) -> int:
        return self.store.engine.paths[journal].journal.end

    def bytes_of(self, journal: int, start: int = 0) -> bytes:
        """The journal as its files have it."""
        data, end = b"", self.end(journal)
        while start + len(data) < end:
            ranges = self.store.engine.file_ranges(journal, start + len(data), 1 << 20)
            assert ranges
            for each in ranges:
                with open(f"/proc/self/fd/{each.fd}", "rb") as file:
                    file.seek(each.offset)
                    data += file.read(each.size)
        return data[: end - start]


class ClusterRig:
    """`brokers`: those that are up, by number."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self.settings = settings
        self.brokers: dict[int, OneBroker] = {}

    async def start(self, number: int, **settings: str) -> OneBroker:
        """Also one that was stopped or dropped, on its directory."""
        one = self.brokers[number] = OneBroker(number, self.directory, **(self.settings | settings))
        await one.start()
        return one

    async def stop(self, number: int) -> None:
        await self.brokers.pop(number).stop()

    async def drop(self, number: int) -> None:
        await self.brokers.pop(number).drop()

    async def close(self) -> None:
        for one in list(self.brokers.values()):
            await one.stop(hands_over=False)

    def __getitem__(self, number: int) -> OneBroker:
        return self.brokers[number]

    # ------------------------------------------------------------------------------------------------- what it serves

    async def create(self, name: str, factor: int = 3, partitions: int = 1, **configs: str) -> Topic:
        """Every broker knows it, and its journals have leaders that are ready."""
        one = next(iter(self.brokers.values()))
        await until(lambda: len(one.leadership.brokers) >= min(factor, len(self.brokers)))
        dotted: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        request = CreateTopic(name=name, partitions=partitions, replication_factor=factor, configs=dotted)
        topic = await one.catalog.create_topic(request)
        assert isinstance(topic, Topic), topic
        for each in self.brokers.values():
            await until(lambda each=each: each.catalog.image.topic(name) is not None)  # type: ignore[misc]
        for journal in {journal for _, _, journal in topic.places()}:
            await self.leader(journal)
        return topic

    async def journal(self, name: str = "t", **configs: str) -> int:
        """Of a new topic with one partition."""
        topic = await self.create(name, **configs)
        return next(journal for _, _, journal in topic.places())

    async def leader(self, journal: int, *, but: Sequence[int] = ()) -> OneBroker:
        """Elected, and ready."""
        found: list[OneBroker] = []

        def is_led() -> bool:
            found[:] = [one for one in self.brokers.values() if one.is_ready(journal) and one.number not in but]
            return len(found) == 1

        await until(is_led)
        return found[0]

    def followers(self, journal: int) -> list[OneBroker]:
        return [one for one in self.brokers.values() if journal not in one.leadership.led]

    def queue(self, one: OneBroker, name: str = "t", partition: int = 0) -> Queue:
        topic = one.catalog.image.topic(name)
        assert topic is not None
        return one.store.queues[topic.queue_id(partition)]

    def append(self, one: OneBroker, *values: bytes, name: str = "t", acks: int = -1) -> Placed:
        """A batch on its way."""
        placed = one.store.append(self.queue(one, name), memoryview(bytearray(batch(*values))), acks, wall_ms())
        assert isinstance(placed, Placed), placed
        return placed

    async def produce(self, one: OneBroker, *values: bytes, name: str = "t", acks: int = -1) -> Placed:
        """Acknowledged."""
        placed = self.append(one, *values, name=name, acks=acks)
        await one.store.reached(placed)
        return placed

    async def equal(self, journal: int) -> bytes:
        """Once all replicas have the same bytes."""
        ones = list(self.brokers.values())
        await until(lambda: len({one.end(journal) for one in ones}) == 1)
        contents = {one.bytes_of(journal) for one in ones}
        assert len(contents) == 1
        return contents.pop()


@asynccontextmanager
async def cluster(directory: Path, *numbers: int, **settings: str) -> AsyncIterator[ClusterRig]:
    """Brokers 1, 2 and 3, or those that are named. `settings`: "replica_lag_time_max_ms" and so on."""
    rig = ClusterRig(directory, settings)
    try:
        for number in numbers or (1, 2, 3):
            await rig.start(number)
        yield rig
    finally:
        await rig.close()
