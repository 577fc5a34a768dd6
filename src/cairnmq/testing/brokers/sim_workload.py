"""Producers with ids on simulated brokers, what they were told, and whether it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from cairnmq.client import records
from cairnmq.client.admin import NewTopic, create_topics
from cairnmq.client.errors import ClientError
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.testing.brokers.sim_client import SimClient
from cairnmq.testing.brokers.sim_machine import DATE_MS
from cairnmq.testing.brokers.sim_socket import Address, SimNetwork
from cairnmq.testing.oracle import demand
from cairnmq.types import TopicPartition

TOPIC = "orders"
PARTITIONS = 3
ENDLESS = 1e9


class Told(Struct):
    """What one producer has tried, and what it was told."""

    place: TopicPartition
    acks: int
    tried: int = 0
    offsets: dict[int, int] = {}


class Workload:
    """A producer for each partition. `acks`: of which each draws its own."""

    def __init__(
        self, random: Random, network: SimNetwork, bootstrap: Sequence[Address], acks: Sequence[int], records_each: int
    ) -> None:
        self.records_each = records_each
        self.told = [Told(TopicPartition(TOPIC, partition), random.choice(acks)) for partition in range(PARTITIONS)]
        self._random = random
        self._network = network
        self._bootstrap = bootstrap

    @property
    def is_answered(self) -> bool:
        return all(len(told.offsets) == self.records_each for told in self.told)

    async def create_topic(self) -> None:
        client = self._client("admin")
        await client.run(create_topics(client.session, [NewTopic(TOPIC, PARTITIONS)], 10_000, twice_is_harmless=True))
        client.close()

    async def produce(self) -> None:
        """All of it, however long that takes."""
        await asyncio.gather(*map(self._produce, self.told))

    async def judge(self) -> None:
        """By the ack table: a record that was acknowledged is at its offset, once, and each producer's are in order."""
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

    def _client(self, name: str) -> SimClient:
        return SimClient(self._network, name, self._bootstrap, patience=ENDLESS)

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
            plan = records.produce(client.session, {told.place: bytearray(batch)}, told.acks, 10_000, create=False)
            try:
                told.offsets[number] = (await client.run(plan))[told.place].base_offset
            except ClientError as error:
                demand(False, told.place, "record", number, "was refused:", error)
            await asyncio.sleep(self._random.expovariate(1 / 0.2))
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
