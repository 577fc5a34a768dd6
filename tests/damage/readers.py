"""Very many readers of one partition that ask again and again, whatever they are answered.

    python -m damage.readers --bootstrap HOST:PORT --topic T --offset N --readers 1000 --seconds 5

A program: it runs niced, beside tests. It prints how often each error code was answered, 0 for records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter

import uvloop

from cairnmq.wire.apis import FETCH, LIST_OFFSETS
from cairnmq.wire.codec import decode
from cairnmq.wire.framing import read_response_header
from cairnmq.wire.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from fuzz.hostile import NOW_MS, Scene, frame

PAUSE_SECONDS = 0.5
LOOKS_EVERY = 20  # of the readers one asks for a time, and one for the largest time
LARGEST_TIME = -3

codes: Counter[str] = Counter()


def fetch_at(topic: str, offset: int) -> bytes:
    asked = FetchRequest.FetchPartition(fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[asked])],
    )
    return frame(FETCH, 11, request)


def look_for(topic: str, timestamp: int) -> bytes:
    asked = ListOffsetsRequest.ListOffsetsPartition(timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])])
    return frame(LIST_OFFSETS, 7, request)


async def reader(scene: Scene, number: int, topic: str, offset: int) -> None:
    looks = {0: LARGEST_TIME, 1: NOW_MS + 1}.get(number % LOOKS_EVERY)
    asked = fetch_at(topic, offset) if looks is None else look_for(topic, looks)
    await asyncio.sleep(random.Random(number).random() * PAUSE_SECONDS)
    wire = await scene.wire(receive_buffer=64 << 10)
    try:
        while True:  # once at least, however slow this machine is
            wire.send(asked)
            body = memoryview(await wire.answer())
            if looks is None:
                answer, _ = decode(FetchResponse, 11, body, read_response_header(body, FETCH, 11)[1])
                codes[str(answer.responses[0].partitions[0].error_code)] += 1
            else:
                listed, _ = decode(ListOffsetsResponse, 7, body, read_response_header(body, LIST_OFFSETS, 7)[1])
                codes[f"looked up: {listed.topics[0].partitions[0].error_code}"] += 1
            if not scene.goes_on:
                break
            await asyncio.sleep(PAUSE_SECONDS)
    except (OSError, asyncio.IncompleteReadError) as error:
        codes[f"lost its connection: {error!r}"] += 1
    wire.close()


async def run(scene: Scene, readers: int, topic: str, offset: int) -> None:
    await asyncio.gather(*(reader(scene, number, topic, offset) for number in range(readers)))


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("offset", "readers"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    os.nice(10)
    host, _, port = given.bootstrap.rpartition(":")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        scene = Scene(host, int(port), "", given.seconds)
        runner.run(run(scene, given.readers, given.topic, given.offset))
    print(json.dumps(codes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
