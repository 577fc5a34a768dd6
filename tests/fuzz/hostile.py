"""Clients that mean harm, one coroutine for each way of doing it. A program: it runs niced, beside tests.

    python -m fuzz.hostile --bootstrap HOST:PORT --http URL --seconds 20 [--only slow_readers,...]

Everything is limited in rate: the point is what a client can make a broker hold, not who takes the core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cache
from urllib.parse import urlsplit

import uvloop
import zstandard

from cairnmq.codec.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from cairnmq.codec.compression import GZIP, LZ4, ZSTD, compress
from cairnmq.codec.crc32c import crc32c
from cairnmq.wire.apis import APIS, FETCH, JOIN_GROUP, LIST_OFFSETS, METADATA, PRODUCE, SERVED
from cairnmq.wire.codec import encode
from cairnmq.wire.framing import request_frame
from cairnmq.wire.messages import (
    FetchRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    Message,
    MetadataRequest,
    ProduceRequest,
)

BIG = "hostile-big"  # tests fill it
OWN = "hostile-own"
BOMBS = "hostile-bombs"  # tests fill it too
COMPACTED = "hostile-compacted"  # tests create it
NOW_MS = 1_700_000_000_000
SECOND = 1.0
PATIENCE_SECONDS = 3.0  # of a broker with somebody who does not read, when others wait for the memory
counts: Counter[str] = Counter()


class Wire:
    """One connection, without manners."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def close(self) -> None:
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        if not self.writer.transport.is_closing():  # else the broker has hung up, which the next read will tell
            self.writer.write(data)

    async def answer(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_cut_off(self) -> bool:
        """The broker hung up."""
        try:
            return not await self.reader.read(1 << 16)
        except OSError:
            return True


class Scene:
    def __init__(self, host: str, port: int, http: str, seconds: float) -> None:
        self.host = host
        self.port = port
        self.http = urlsplit(http)
        self.until = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    @property
    def left(self) -> float:
        return max(self.until - time.monotonic(), 0.01)

    async def wire(self, port: int = 0, receive_buffer: int = 0) -> Wire:
        raw = socket.socket()
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (self.host, port or self.port))
        limit = receive_buffer or 1 << 16
        return Wire(*await asyncio.open_connection(sock=raw, limit=limit))


def frame(key: int, version: int, request: Message, correlation: int = 1) -> bytes:
    return b"".join(request_frame(key, version, correlation, "hostile", encode(request, version)))


def fetch(topic: str, partitions: int, *, wait_ms: int = 500, at_least: int = 1) -> bytes:
    asked = [
        FetchRequest.FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=50 << 20)
        for p in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=at_least,
        max_bytes=50 << 20,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=asked)],
    )
    return frame(FETCH, 11, request)


def produce(topic: str, records: bytes, acks: int = 1) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    return frame(PRODUCE, 9, request)


def sealed(codec: int, body: bytes, count: int = 1) -> bytes:
    """A batch whose header is right, whatever its body is."""
    batch = bytearray(HEADER_SIZE) + body
    fields = (codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    HEADER.pack_into(batch, 0, 0, len(batch) - LENGTH_OVERHEAD, -1, MAGIC, 0, *fields)
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_OVERHEAD, -1, MAGIC, crc32c(memoryview(batch)[CRC_START:]), *fields
    )
    return bytes(batch)


@cache
def bombs() -> list[bytes]:
    """Under a megabyte each, and hundreds of megabytes unpacked."""
    zeros = bytes(1 << 20)
    gzip = zlib.compressobj(3, zlib.DEFLATED, 31)
    gzipped = b"".join(gzip.compress(zeros) for _ in range(200)) + gzip.flush()
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    zstd = b"".join(packer.compress(zeros) for _ in range(1000)) + packer.flush()
    record = b"\x0c\0\0\0\1\1\0"  # six bytes: no key, no value
    small = compress(ZSTD, record * 1_000_000)
    return [sealed(GZIP, gzipped), sealed(ZSTD, zstd), sealed(LZ4, compress(LZ4, bytes(100 << 20))),
            sealed(ZSTD, small, 1_000_000)]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ attacks


async def slow_readers(scene: Scene) -> None:
    """Ask for 50 MB and read a byte a second."""

    async def one() -> None:
        while scene.goes_on:
            wire = await scene.wire(receive_buffer=4096)
            wire.send(fetch(BIG, 4))
            try:
                while scene.goes_on and await wire.reader.read(1):  # noqa: ASYNC110
                    await asyncio.sleep(SECOND)
            except OSError:
                counts["slow readers cut off"] += 1
            wire.close()
            await asyncio.sleep(0.2)

    await asyncio.gather(*(one() for _ in range(60)))


async def leavers(scene: Scene) -> None:
    """Ask for much, then send nonsense, so that the broker wants to hang up, and read nothing of what they are owed."""

    async def one(asked: int) -> None:
        while scene.goes_on:
            wire = await scene.wire(receive_buffer=4096)
            wire.send(fetch(BIG, 4) * asked + struct.pack(">i", -1))
            try:
                async with asyncio.timeout(scene.left):
                    await wire.writer.drain()
                    while scene.goes_on and not wire.writer.transport.is_closing():  # noqa: ASYNC110
                        await asyncio.sleep(SECOND)
            except (OSError, TimeoutError):
                pass
            wire.close()

    await asyncio.gather(*(one(number % 6 + 1) for number in range(60)))


async def slow_writers(scene: Scene) -> None:
    """Send a request byte by byte, one each second; some of them after a part that is worth a chunk of memory."""

    async def one(data: bytes, at_once: int = 0) -> None:
        wire = await scene.wire()
        wire.send(data[:at_once])
        for place in range(at_once, len(data)):
            if not scene.goes_on:
                break
            wire.send(data[place : place + 1])
            await asyncio.sleep(SECOND)
        wire.close()

    asked = frame(METADATA, 9, MetadataRequest(topics=None))
    large = struct.pack(">i", 900_000) + produce(OWN, bytes(100))[4:]
    half = struct.pack(">i", 60_000) + produce(OWN, bytes(1000))[4:]
    await asyncio.gather(
        *(one(asked if number % 2 else large) for number in range(60)), *(one(half, 300) for _ in range(1000))
    )


async def announcers(scene: Scene) -> None:
    """Announce 90 MB, and send nothing, or some of it and then nothing."""

    async def one(part: int) -> None:
        while scene.goes_on:
            wire = await scene.wire()
            wire.send(struct.pack(">i", 90 << 20) + struct.pack(">hhi", PRODUCE, 9, 1))
            try:
                for _ in range(part):
                    wire.send(bytes(1 << 20))
                    async with asyncio.timeout(scene.left):
                        await wire.writer.drain()
                    await asyncio.sleep(0.1)
                async with asyncio.timeout(scene.left):
                    if await wire.is_cut_off():
                        counts["announcers cut off"] += 1
            except (OSError, TimeoutError):
                pass
            wire.close()
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one(0) for _ in range(20)), *(one(6) for _ in range(10)))


async def huge_counts(scene: Scene) -> None:
    """Arrays, texts and bytes of 2^31 items at every place where a request may begin with one."""
    rng = random.Random(7)
    while scene.goes_on:
        for key, (_, version) in SERVED.items():
            flexible = APIS[key].is_flexible(version)
            head = struct.pack(">hhih", key, version, 1, 0) + (b"\0" if flexible else b"")
            length = rng.choice([b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f"]) if flexible else b"\x7f\xff\xff\xff"
            body = head + bytes(rng.choice([0, 0, 1, 2, 4, 6, 8, 16])) + length * rng.choice([1, 2, 5])
            wire = await scene.wire()
            wire.send(struct.pack(">i", len(body)) + body)
            try:
                async with asyncio.timeout(0.1):
                    await wire.is_cut_off()
            except TimeoutError:
                counts["huge counts that were answered or parked"] += 1
            wire.close()
            counts["huge counts"] += 1
            await asyncio.sleep(0.01)


async def bomb_throwers(scene: Scene) -> None:
    """Lookups by time that must look into batches that expand a thousandfold (tests put them there), and the same
    batches for a compacted topic, which looks whether every record has a key."""
    stamps = [ListOffsetsRequest.ListOffsetsPartition(partition_index=p, timestamp=NOW_MS) for p in range(4)]
    topic = ListOffsetsRequest.ListOffsetsTopic(name=BOMBS, partitions=stamps)
    asked = frame(LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=[topic]))

    async def one(data: bytes, counted: str) -> None:
        wire = await scene.wire()
        while scene.goes_on:
            wire.send(data)
            try:
                # One answer at least: on a busy machine that may take longer than all.
                async with asyncio.timeout(scene.left if counts[counted] else scene.left + 60):
                    await wire.answer()
            except TimeoutError:
                break
            counts[counted] += 1
            await asyncio.sleep(0.2)
        wire.close()

    thrown = [one(produce(COMPACTED, bomb), "bombs for a compacted topic") for bomb in bombs()]
    await asyncio.gather(*(one(asked, "bombs looked into") for _ in range(4)), *thrown)


async def lookers(scene: Scene) -> None:
    """Lookups by time into many large batches at once."""
    stamps = [ListOffsetsRequest.ListOffsetsPartition(partition_index=p, timestamp=NOW_MS) for p in range(4)]
    topic = ListOffsetsRequest.ListOffsetsTopic(name=BIG, partitions=stamps)
    asked = frame(LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=[topic]))

    async def one() -> None:
        wire = await scene.wire()
        while scene.goes_on:
            wire.send(asked)
            try:
                async with asyncio.timeout(scene.left):
                    await wire.answer()
            except TimeoutError:
                break
            counts["lookups into large batches"] += 1
            await asyncio.sleep(SECOND)
        wire.close()

    await asyncio.gather(*(one() for _ in range(60)))


async def pipeliners(scene: Scene) -> None:
    """10,000 requests before the first answer is read."""

    async def answered(data: bytes) -> bool:
        """Or cut off, and rightly: we read nothing for too long."""
        wire = await scene.wire()
        began = time.monotonic()
        for _ in range(100):
            wire.send(data * 100)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        silent = time.monotonic() - began
        try:
            for _ in range(10_000):
                await wire.answer()
        except (OSError, asyncio.IncompleteReadError):
            if silent < PATIENCE_SECONDS:
                raise
            counts["pipeliners cut off"] += 1
            return False
        finally:
            wire.close()
        counts["pipelined"] += 10_000
        return True

    for data in (frame(METADATA, 9, MetadataRequest(topics=None)), produce(OWN, sealed(0, b"\x0c\0\0\0\1\1\0"))):
        while not await answered(data) and scene.goes_on:
            continue


async def flooders(scene: Scene) -> None:
    """Connections and nothing more; some say half a word and are gone."""
    held: list[Wire] = []
    while scene.goes_on:
        try:
            wire = await scene.wire()
        except OSError:
            counts["connections refused"] += 1
            await asyncio.sleep(0.1)
            continue
        counts["connections"] += 1
        if counts["connections"] % 3 == 0:
            wire.send(b"\0\0")
        held.append(wire)
        if len(held) > 1000:
            for old in held[:500]:
                old.close()  # with RST: nothing was read
            held = held[500:]
        await asyncio.sleep(0.005)
    for wire in held:
        wire.close()


async def garbage_producers(scene: Scene) -> None:
    """Noise with a right CRC, with and without acknowledgement."""
    rng = random.Random(3)
    wire = await scene.wire()
    while scene.goes_on:
        for _ in range(20):
            wire.send(produce(OWN, sealed(rng.randrange(5), rng.randbytes(2000)), acks=rng.choice([0, 1])))
            counts["garbage"] += 1
        wire.reader._buffer.clear()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
    wire.close()


async def wide_fetchers(scene: Scene) -> None:
    """100,000 partitions in a request, for as long as the protocol can say; and with sessions, to be remembered."""

    async def one(session: bool) -> None:
        asked = [FetchRequest.FetchPartition(partition=p % 4 if not session else p) for p in range(100_000)]
        request = FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=2**31 - 1,
            max_bytes=1,
            session_epoch=0 if session else -1,
            topics=[FetchRequest.FetchTopic(topic=OWN, partitions=asked)],
        )
        data = frame(FETCH, 11, request)
        while scene.goes_on:
            wire = await scene.wire()
            wire.send(data)
            try:
                async with asyncio.timeout(scene.left):
                    await wire.answer()
                counts["wide fetches"] += 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                counts["wide fetches without an answer"] += 1
            wire.close()
            await asyncio.sleep(8)  # each takes a good part of a second of the broker's time

    await asyncio.gather(*(one(number % 2 == 0) for number in range(4)))


@cache
def many_names() -> tuple[bytes, bytes]:
    """Too many, and as many as are allowed."""
    many = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=f"none-{n}") for n in range(1_000_000)],
        allow_auto_topic_creation=True,
    )
    too_many = frame(METADATA, 9, many)
    many.topics = (many.topics or [])[:100_000]
    many.allow_auto_topic_creation = False
    return too_many, frame(METADATA, 9, many)


async def askers(scene: Scene) -> None:
    """The metadata of a million topics that do not exist, and of as many as are allowed."""
    while scene.goes_on:
        for data in many_names():
            wire = await scene.wire()
            wire.send(data)
            try:
                async with asyncio.timeout(scene.left):
                    await wire.answer()
                counts["100,000 names answered"] += 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                counts["a million names hung up on"] += 1
            wire.close()
            await asyncio.sleep(4)


async def fat_members(scene: Scene) -> None:
    """Members of ever new groups with megabytes of metadata each."""
    wires = [await scene.wire() for _ in range(20)]
    number = 0
    while scene.goes_on:
        for wire in wires:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(3 << 20))
            join = JoinGroupRequest(
                group_id=f"fat-{number}",
                session_timeout_ms=1_000_000,
                rebalance_timeout_ms=2**31 - 1,
                protocol_type="consumer",
                protocols=[protocol],
            )
            wire.send(frame(JOIN_GROUP, 3, join))
            number += 1
            counts["fat joins"] += 1
            await asyncio.sleep(0.05)
            wire.reader._buffer.clear()  # type: ignore[attr-defined]
    for wire in wires:
        wire.close()


async def http_flooders(scene: Scene) -> None:
    """The status port: half a head, an endless head, thousands of requests, answers that nobody reads."""
    port = scene.http.port or 0
    shots = [
        b"GET / HTTP/1.1\r\n",
        b"GET /" + b"a" * 60_000,
        b"GET /metrics HTTP/1.1\r\n\r\n" * 200,
        b"GET /api/v1/status HTTP/1.1\r\n\r\n" * 200,
        b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\n\r\n",
        b"GET //[ HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + bytes(10_000),
        b"\xff\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    ]
    held: list[Wire] = []
    number = 0
    while scene.goes_on:
        try:
            wire = await scene.wire(port, receive_buffer=4096)
        except OSError:
            counts["http connections refused"] += 1
            await asyncio.sleep(0.1)
            continue
        wire.send(shots[number % len(shots)])
        number += 1
        counts["http connections"] += 1
        held.append(wire)
        if len(held) > 300:
            held.pop(0).close()
        await asyncio.sleep(0.01)
    for wire in held:
        wire.close()


ATTACKS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        slow_readers, leavers, slow_writers, announcers, huge_counts, bomb_throwers, lookers, pipeliners, flooders,
        garbage_producers, wide_fetchers, askers, fat_members, http_flooders,
    )
}  # fmt: skip


async def run(scene: Scene, names: list[str]) -> list[str]:
    """What went wrong with attackers that should have gone on."""
    done = await asyncio.gather(*(ATTACKS[name](scene) for name in names), return_exceptions=True)
    return [f"{name}: {problem!r}" for name, problem in zip(names, done, strict=True) if problem is not None]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", default=",".join(ATTACKS))
    given = parser.parse_args()
    os.nice(10)
    host, _, port = given.bootstrap.rpartition(":")
    bombs(), many_names()  # seconds, on a busy machine many: before the time begins
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        problems = runner.run(run(Scene(host, int(port), given.http, given.seconds), given.only.split(",")))
    print(json.dumps({**counts, "problems": problems}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
