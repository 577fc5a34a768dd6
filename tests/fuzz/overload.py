"""More honest clients than a small broker can serve at once: large batches, 50 MB fetches, a thousand connections.

    python -m fuzz.overload --bootstrap HOST:PORT --seconds 20

A program: it runs niced, beside tests. It prints what was answered, and every error that a client could not retry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import struct
import sys
import time
from collections import Counter

import uvloop

from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import FETCH, METADATA, PRODUCE
from cairnmq.wire.codec import decode
from cairnmq.wire.framing import read_response_header
from cairnmq.wire.messages import FetchResponse, MetadataRequest, ProduceResponse
from fuzz.hostile import Scene, Wire, fetch, frame, produce, sealed

TOPIC = "overload"
PARTITIONS = 16
PRODUCERS, CONSUMERS, OTHERS = 200, 100, 700
PIPELINED = 3
BATCH_BYTES = 900_000
BYTES_PER_SECOND = 60 << 20  # over all producers: they all send at once, then all wait
RETRIABLE = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}
STILL_SECONDS = 0.5
STAMP = b"\x0c\0\0\0\1\1\0"

counts: Counter[str] = Counter()
slowest: dict[str, float] = {}
errors: Counter[str] = Counter()


def note(what: str, started: float) -> None:
    counts[what] += 1
    slowest[what] = max(slowest.get(what, 0.0), round(time.monotonic() - started, 2))


def note_error(what: str, code: int) -> None:
    if code:
        retriable = code in RETRIABLE
        (counts if retriable else errors)[f"{what}: {ErrorCode(code).name}"] += 1


class Lateness:
    """Of our own loop: who stands still in the middle of a request while others wait is rightly cut off after 1 s."""

    def __init__(self) -> None:
        self.stalls: list[tuple[float, float]] = []

    async def watch(self, scene: Scene) -> None:
        while scene.goes_on:
            began = time.monotonic()
            await asyncio.sleep(0.05)
            self.stalls.append((time.monotonic(), time.monotonic() - began - 0.05))

    def stood_still(self) -> bool:
        return any(late > STILL_SECONDS for end, late in self.stalls if end > time.monotonic() - 3)

    def worst(self) -> float:
        return round(max((late for _, late in self.stalls), default=0.0), 2)


lateness = Lateness()


def note_loss(who: str, error: Exception) -> None:
    if lateness.stood_still():
        counts[f"{who} that stood still, and lost its connection"] += 1
    else:
        errors[f"{who} lost its connection: {error!r}"] += 1


async def producer(scene: Scene, data: bytes) -> None:
    pause = PRODUCERS * PIPELINED * BATCH_BYTES / BYTES_PER_SECOND
    while scene.goes_on:
        wire = await scene.wire()
        try:
            while scene.goes_on:
                started = time.monotonic()
                for _ in range(PIPELINED):
                    wire.send(data)
                for _ in range(PIPELINED):
                    body = await wire.answer()
                    _, position = read_response_header(memoryview(body), PRODUCE, 9)
                    answer, _ = decode(ProduceResponse, 9, body, position)
                    note_error("produce", answer.responses[0].partition_responses[0].error_code)
                    note("batches", started)
                await asyncio.sleep(max(0.0, started + pause - time.monotonic()))
        except (OSError, asyncio.IncompleteReadError) as error:
            await asyncio.sleep(0.2)  # a stall that is just over is noted by then
            note_loss("a producer", error)
        wire.close()


async def consumer(scene: Scene, number: int) -> None:
    """Every other one reads a megabyte a second."""
    slow = number % 2 == 0
    asked = fetch(TOPIC, 1)
    while scene.goes_on:
        wire = await scene.wire(receive_buffer=64 << 10)
        try:
            while scene.goes_on:
                started = time.monotonic()
                wire.send(asked)
                body = await _slowly(wire) if slow else await wire.answer()
                _, position = read_response_header(memoryview(body), FETCH, 11)
                answer, _ = decode(FetchResponse, 11, body, position)
                note_error("fetch", answer.responses[0].partitions[0].error_code)
                note("slow fetches" if slow else "fetches", started)
                counts["fetched MB"] += len(body) >> 20
                await asyncio.sleep(0.2)
        except (OSError, asyncio.IncompleteReadError):
            counts[f"{'slow' if slow else 'quick'} consumers that had to connect again"] += 1
            await asyncio.sleep(0.5)
        wire.close()


async def _slowly(wire: Wire) -> bytes:
    (left,) = struct.unpack(">i", await wire.reader.readexactly(4))
    pieces = []
    while left:
        piece = await wire.reader.read(min(left, 1 << 16))
        if not piece:
            raise ConnectionError
        pieces.append(piece)
        left -= len(piece)
        await asyncio.sleep(1 / 16)
    return b"".join(pieces)


async def other(scene: Scene, number: int) -> None:
    asked = frame(METADATA, 9, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]))
    wire = await scene.wire()
    await asyncio.sleep(random.Random(number).random() * 3)
    try:
        while scene.goes_on:
            started = time.monotonic()
            wire.send(asked)
            await wire.answer()
            note("metadata", started)
            await asyncio.sleep(3)
    except (OSError, asyncio.IncompleteReadError) as error:
        errors[f"another client lost its connection: {error!r}"] += 1
    wire.close()


def batches() -> list[bytes]:
    """Of each producer; made before the time begins."""
    made = (sealed(0, STAMP + os.urandom(BATCH_BYTES)) for _ in range(PRODUCERS))
    return [produce(TOPIC, batch, acks=-1 if number % 2 else 1) for number, batch in enumerate(made)]


async def run(scene: Scene, data: list[bytes]) -> None:
    await asyncio.gather(
        lateness.watch(scene),
        *(producer(scene, each) for each in data),
        *(consumer(scene, number) for number in range(CONSUMERS)),
        *(other(scene, number) for number in range(OTHERS)),
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    os.nice(10)
    host, _, port = given.bootstrap.rpartition(":")
    data = batches()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(Scene(host, int(port), "", given.seconds), data))
    print(json.dumps({**counts, "slowest seconds": slowest, "own lateness": lateness.worst(), "errors": errors}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
