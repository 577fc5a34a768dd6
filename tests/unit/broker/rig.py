"""A broker inside the test's event loop: real handlers, catalog, journals and settings, but no sockets and no splitter.

`ask` sends a request through the codec in both directions, so a field that a version does not have cannot slip through.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from msgspec.structs import replace

from cairnmq.broker.assembly import Broker, assemble
from cairnmq.broker.context import Node
from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.fact_log import FactLog
from cairnmq.broker.coordination.journal_coordinator import JournalCoordinator
from cairnmq.broker.coordination.transaction_coordinator import TransactionCoordinator
from cairnmq.broker.leadership import JournalView, KnownBroker, Leadership
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec
from cairnmq.broker.requests.reply import Reply
from cairnmq.broker.runtime import Runtime
from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches
from cairnmq.errors import Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.image import Topic
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import MetadataStore
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.recovery.owner import OwnerWitness
from cairnmq.storage.recovery.witness import begin
from cairnmq.types import Buffer, Caller, Counters
from cairnmq.wire.apis import response_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import FetchRequest, FetchResponse, Message, ProduceRequest, ProduceResponse

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, None]])
NOW_MS = 1_700_000_000_000
OTHERS = (KnownBroker(2, "second", 9192, "rack-2"), KnownBroker(3, "third", 9292, None))
LISTENER = ListenerSpec(PLAINTEXT, PLAINTEXT, Address("127.0.0.1", 9092), Address("127.0.0.1", 9092))
PATIENCE_SECONDS = 120  # of a whole test, on a machine that others use too; only a failure uses it up


def scenario(test: F) -> Callable[..., None]:
    """An async test, run to its end on the event loop that the broker uses."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_SECONDS))

    return run


async def until(condition: Callable[[], object]) -> None:
    """For what gives no event: the other end of a socket, a thread. The time limit is that of the whole test."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class Time:
    """The wall clock of a rig, which tests move."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Rig:
    def __init__(self, broker: Broker, time: Time, configs: list[BrokerConfig]) -> None:
        self.broker = broker
        self.configs = configs  # that were set while it ran
        self.ctx = broker.ctx
        self.far = False  # is the client
        self.listener = LISTENER.name  # by which it came
        self.connection = 0  # its number
        self._time = time
        self._correlations = itertools.count(1)

    @property
    def now_ms(self) -> int:
        return self._time.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._time.now_ms = now_ms

    async def ask(self, key: int, version: int, request: Message) -> Any:
        """The decoded answer; None when there is none (acks=0)."""
        frame = memoryview(bytearray(b"".join(encode(request, version))))
        caller = Caller(is_far=self.far, listener=self.listener, connection=self.connection)
        header = RequestHeader(key, version, next(self._correlations), "test", caller)
        outcome: Any = self.broker.router.routes[key].call(self.ctx, header, frame, 0)
        if isinstance(outcome, Reply):
            if not outcome.done:
                future = asyncio.get_running_loop().create_future()
                # A test that does not wait any more is like a client that went.
                outcome.deliver = lambda reply: None if future.done() else future.set_result(None)
                await future
            failure, outcome.failure = outcome.failure, None
            if failure is not None:
                try:
                    raise failure
                finally:
                    del failure  # it knows this frame: a reference cycle would keep all that was read
            outcome = outcome.response
        if outcome is None:
            return None
        body: list[Buffer] = outcome if isinstance(outcome, list) else encode(outcome, version)
        message, end = decode(response_class(key), version, b"".join(body))
        assert end == sum(map(len, body)), "bytes behind the answer"
        return message

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """`max_message_bytes="100"` sets max.message.bytes."""
        dotted: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        topic = await self.ctx.catalog.create_topic(CreateTopic(name=name, partitions=partitions, configs=dotted))
        assert isinstance(topic, Topic), topic
        return topic

    @property
    def of_journal(self) -> JournalCoordinator:
        """Groups and transactions of the only journal."""
        (only,) = self.ctx.coordinators.loaded
        return only

    @property
    def facts(self) -> FactLog:
        return self.of_journal.facts

    @property
    def coordinator(self) -> Coordinator:
        return self.of_journal.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.of_journal.transactions

    def lead(self, journal: int, epoch: int) -> None:
        """As if an election had given it this epoch. Before anything is written there."""
        engine = self.ctx.store.engine
        engine.epochs[journal] = engine.paths[journal].journal.epoch = epoch
        leadership = self.ctx.leadership
        leadership.know(journal, replace(leadership.view(journal), epoch=epoch))
        leadership.lead(journal, epoch, is_ready=True)

    def join_cluster(self, *views: JournalView) -> Leadership:
        """As if brokers 2 and 3 were there too. `views`: of the journals from 0 on; this broker serves as before."""
        leadership = self.ctx.leadership
        leadership.is_cluster = True
        leadership.know_brokers([*leadership.brokers, *OTHERS], 2)
        for journal, view in enumerate(views):
            leadership.know(journal, view)
        return leadership

    def replicate(self, journal: int = 0, isr: tuple[int, ...] = (1, 2, 3), *, is_ready: bool = True) -> WritePath:
        """As if brokers 2 and 3 had replicas of the journal. What is written from now on counts when the test says so:
        `replicated_to` and `durable_to` of the path."""
        epoch = self.ctx.store.epochs[journal]
        leadership = self.join_cluster()
        leadership.know(journal, JournalView(1, epoch, (1, 2, 3), isr))
        leadership.lead(journal, epoch, is_ready=is_ready)
        store = self.ctx.store
        alone = store.loops[journal].path
        path = WritePath(alone.journal, keyed={}, waiting=alone.waiting)
        path.unsplit_entries, path.sync_by_ms = alone.unsplit_entries, alone.sync_by_ms
        store.loops[journal].path = store.engine.paths[journal] = path
        return path

    def lose(self, journal: int = 0, leader: int = 2) -> None:
        """As if another broker had been elected."""
        leadership = self.ctx.leadership
        leadership.know(journal, JournalView(leader, leadership.view(journal).epoch + 1, (1, 2, 3), (1, 2, 3)))
        leadership.lost(journal)
        path = self.ctx.store.loops[journal].path
        if not path.alone:
            path.step_down("another broker leads")

    def queue(self, name: str, partition: int = 0) -> Any:
        topic = self.ctx.catalog.image.topic(name)
        assert topic is not None
        queue_id = topic.queue_id(partition)
        assert queue_id is not None
        return self.ctx.store.queues[queue_id]

    async def produce(
        self, topic: str, records: Buffer | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        """The answer for one partition."""
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        if version >= 13:
            known = self.ctx.catalog.image.topic(topic)
            request.topic_data[0].topic_id = known.topic_id if known else bytes(15) + b"\1"
        response: ProduceResponse | None = await self.ask(0, version, request)
        return None if response is None else response.responses[0].partition_responses[0]

    async def fetch(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **fields: Any
    ) -> FetchResponse:
        """`max_bytes`, `max_wait_ms`, ... of the request; `current_leader_epoch`, ... of the partition."""
        own = {name: fields.pop(name) for name in list(fields) if name in _PARTITION_FIELDS}
        asked = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20} | own
        )
        request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[asked])], **fields)
        if version >= 13:
            known = self.ctx.catalog.image.topic(topic)
            request.topics[0].topic_id = known.topic_id if known else bytes(15) + b"\1"
        response: FetchResponse = await self.ask(1, version, request)
        return response


_PARTITION_FIELDS = FetchRequest.FetchPartition.__struct_fields__


def batch(*values: bytes | None, timestamp: int = NOW_MS, **fields: Any) -> bytes:
    records = [Record(index, timestamp + index, None, value, ()) for index, value in enumerate(values)]
    return bytes(build_batch(records, **fields))


def records_of(response: FetchResponse) -> list[Record]:
    """The records of the first partition of an answer."""
    data = response.responses[0].partitions[0].records
    return [record for one in iter_batches(data or b"") for record in decode_batch(one)]


@asynccontextmanager
async def open_rig(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    journals: Sequence[int] = (0,),
    shared: MetadataStore | None = None,
    recovered: Callable[[Catalog], object] = id,
    runtime: Runtime = MACHINE,
) -> AsyncIterator[Rig]:
    """Opened again on the same directory, it recovers what it held. New queues go to these journals. `shared`: the
    metadata of a cluster. `recovered`: called when storage is open and nothing else is."""
    config = broker_config(settings or {}, in_cluster=shared is not None)
    assert isinstance(config, BrokerConfig), config
    data = directory / "data"
    data.mkdir(exist_ok=True)
    disks = RealDisk(data / "journal"), RealDisk(data)
    async with AsyncExitStack() as stack:
        store = shared or stack.enter_context(closing(SqliteStore(str(data / "meta.db"))))
        catalog = stack.enter_context(closing(Catalog(store, journals=journals, in_cluster=shared is not None)))
        catalog.load()
        catalog.name_cluster()
        changed = catalog.broker_config(config)
        assert not isinstance(changed, Refusal)
        thread = stack.enter_context(ThreadPoolExecutor(1))
        metadata = OpenMetadata(catalog, thread, changed, OwnerWitness(disks[0], catalog.cluster_id))

        def keep(begun: Counters) -> None:
            catalog.make_slots(tuple(journals))
            metadata.witness.keep(catalog.counters())

        engine = Engine.open(
            *disks,
            all_queue_specs(catalog.image, changed),
            journals=journals,
            begin=lambda known: begin(catalog, known, keep),
            seed=7,
            config=EngineConfig(),
            now_ms=NOW_MS,
        )
        recovered(catalog)
        time, configs = Time(), list[BrokerConfig]()
        broker = assemble(
            metadata,
            OpenStorage(engine, catalog.make_slots((0,)), str(data / "journal"), str(data)),
            Node(1, "rack-1", catalog.cluster_id, (LISTENER,)),
            runtime=replace(runtime, wall_ms=time),
            on_config=configs.append,
        )
        stack.push_async_callback(broker.close)
        yield Rig(broker, time, configs)
