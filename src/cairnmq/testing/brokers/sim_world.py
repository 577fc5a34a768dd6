"""A broker under faults with clients, from one seed: killed, paused, without power, its splitter killed alone.

What clients were told is judged by the ack table (docs/architecture.md): a record that was acknowledged is at its
offset, once, and each producer's records are in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from typing import Any

from msgspec import Struct

from cairnmq.client import records
from cairnmq.client.admin import NewTopic, create_topics
from cairnmq.client.errors import ClientError
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.testing.brokers.sim_broker import SimBroker
from cairnmq.testing.brokers.sim_client import SimClient
from cairnmq.testing.brokers.sim_loop import SimLoop
from cairnmq.testing.brokers.sim_machine import DATE_MS, SimMachine
from cairnmq.testing.brokers.sim_process import SimProcess
from cairnmq.testing.brokers.sim_socket import SimNetwork
from cairnmq.testing.memory_store import MemoryState
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_checks import check_verify
from cairnmq.types import TopicPartition

KILL, POWER, SPLITTER, PAUSE = "kill", "power", "splitter", "pause"
FAULTS = (KILL, POWER, SPLITTER, PAUSE)
TOPIC = "orders"
PARTITIONS = 3
START_SECONDS_MAX = 30.0
CALM_SECONDS = 600.0  # after the last fault everything is answered within it
SPLIT_LOOKS = 120  # a second apart
ENDLESS = 1e9


class Told(Struct):
    """What one producer has tried, and what it was told."""

    place: TopicPartition
    acks: int
    tried: int = 0
    offsets: dict[int, int] = {}


class Errors(logging.Handler):
    """Defects that a broker survives: it has noted them with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


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
        self.records_each = records_each
        # After a power loss the sequence of acks=1 may have a gap, which ends a producer with an id.
        acks = (-1,) if POWER in self.faults else (-1, 1)
        self.told = [
            Told(TopicPartition(TOPIC, partition), self.random.choice(acks)) for partition in range(PARTITIONS)
        ]
        self.process = SimProcess()
        self.processes = [self.process]
        self.errors = Errors()
        self._ends_at = 0.0
        self._broker: SimBroker | None = None

    def run(self) -> None:
        """Violation, or another exception, if something was not as it must be."""
        log = logging.getLogger()
        log.addHandler(self.errors)
        self.loop.set_exception_handler(self._note)
        try:
            self.loop.run_until_complete(self._live())
        finally:
            log.removeHandler(self.errors)
            self.process.kill()
            for process in self.processes:
                process.bury()
            self.loop.close()
        demand(not self.errors.found, *self.errors.found)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.found.append(f"{context['message']}: {context.get('exception')!r}")

    async def _live(self) -> None:
        await self._start()
        client = self._client("admin")
        topic = NewTopic(TOPIC, PARTITIONS)
        await client.run(create_topics(client.session, [topic], 10_000, twice_is_harmless=True))
        client.close()
        producers = asyncio.gather(*map(self._produce, self.told))
        strikes = asyncio.create_task(self._strike(producers))
        await strikes
        async with asyncio.timeout(CALM_SECONDS):
            await producers
            await self._judge()

    # --------------------------------------------------------------------------------------------------------- clients

    def _client(self, name: str) -> SimClient:
        return SimClient(self.network, name, [("broker-1", 9092)], patience=ENDLESS)

    async def _produce(self, told: Told) -> None:
        client = self._client(f"producer-{told.place.partition}")
        owner = await client.run(records.init_producer_id(client.session))
        while told.tried < self.records_each:
            number = told.tried
            told.tried += 1
            record = Record(0, DATE_MS, None, b"%d" % number, ())
            batch = build_batch(
                [record], producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=number
            )
            plan = records.produce(client.session, {told.place: bytearray(batch)}, told.acks, 10_000)
            try:
                told.offsets[number] = (await client.run(plan))[told.place].base_offset
            except ClientError as error:
                demand(False, told.place, "record", number, "was refused:", error)
            await asyncio.sleep(self.random.expovariate(1 / 0.2))
        client.close()

    async def _read(self, client: SimClient, place: TopicPartition) -> list[tuple[int, int]]:
        """Offset and number of each record."""
        (listed,) = (await client.run(records.list_offsets(client.session, TOPIC, [place.partition], -1))).values()
        found: list[tuple[int, int]] = []
        offset = 0
        while offset < listed.offset:
            fetched = await client.run(
                records.fetch(
                    client.session,
                    {TOPIC: {place.partition: offset}},
                    max_wait_ms=500,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    partition_max_bytes=1 << 20,
                )
            )
            for one in fetched:
                demand(not one.error, place, "offset", offset, "cannot be read: error", one.error)
                for data in one.batches:
                    for record in decode_batch(data):
                        assert record.value is not None
                        found.append((record.offset, int(record.value)))
                        offset = record.offset + 1
        return found

    # ---------------------------------------------------------------------------------------------------------- faults

    async def _start(self) -> None:
        """A new process; it may be struck before it serves."""
        self.process = SimProcess()
        self.processes.append(self.process)
        self._broker = SimBroker(self.machine, self.metadata)
        self._starting = self.process.run(self.loop, self._broker.start())

    async def _strike(self, until: asyncio.Future[Any]) -> None:
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
        if self.random.random() < 0.3:
            splitter.kill()
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
        client = self._client("reader")
        for told in self.told:
            found = await self._read(client, told.place)
            by_number = {number: offset for offset, number in found}
            demand([offset for offset, _ in found] == [*range(len(found))], told.place, "has gaps", found)
            demand([number for _, number in found] == sorted(by_number), told.place, "is not in order", found)
            for number, offset in told.offsets.items():
                at = by_number.get(number)
                demand(at == offset, told.place, "record", number, "was told to be at", offset, "and is at", at)
        client.close()
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
