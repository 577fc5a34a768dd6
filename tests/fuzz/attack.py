"""Sends mutated requests to a broker, and holds its answers against the schema. A program: it runs niced, beside tests.

    python -m fuzz.attack --bootstrap HOST:PORT --seed 1 --frames 100000 [--first 0] [--rate 2000] [--seconds 60]
    python -m fuzz.attack --seed 1 --show 4711          prints one frame

Frame N of a seed is always the same one, but for the ids of topics. In the end each API and version that got no answer
is asked rightly: what is advertised and never answered is a finding.
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
from collections import Counter, deque

import uvloop

from cairnmq.client.blocking import Client
from cairnmq.wire.apis import APIS, PRODUCE, SERVED, response_class
from cairnmq.wire.codec import Malformed, decode
from cairnmq.wire.framing import read_response_header
from fuzz.frames import Maker, recorded, served
from fuzz.mutations import mutate, mutate_bytes

WORKERS = 12
PATIENCE_SECONDS = 0.25  # for an answer; a request may rightly be parked for longer
ANSWER_BYTES_MAX = 64 << 20
PAIRS = served()
RECORDED = recorded()
ROLL_CALL_TRIES = 10  # a join may be parked, a produce may want no answer
ROLL_CALL_SECONDS = 2.0
Pair = tuple[int, int]
"""Key of an API, version."""


class Shot:
    """What is sent, and what answer it may get."""

    __slots__ = ("number", "data", "key", "version", "correlation", "wild")

    def __init__(self, number: int, body: bytes, size: int) -> None:
        self.number = number
        self.data = struct.pack(">I", size & 0xFFFFFFFF) + body
        self.wild = size != len(body) or len(body) < 8  # what follows is not read as we meant it
        self.key, self.version, self.correlation = struct.unpack_from(">hhi", body + bytes(8))


def shot(seed: int, number: int, ids: list[bytes]) -> Shot:
    rng = random.Random(f"{seed}:{number}")
    correlation = number & 0x7FFFFFFF
    if rng.random() < 0.1:
        body = bytearray(rng.choice(RECORDED))
        struct.pack_into(">i", body, 4, correlation)
        data = mutate_bytes(rng, bytes(body)) if rng.random() < 0.9 else bytes(body)
    else:
        # In turn, so that every API and version is met; ten times as often than by chance with 100,000 frames.
        key, version = PAIRS[number % len(PAIRS)]
        data = mutate(rng, Maker(rng, ids).frame(key, version, correlation))
    size = len(data)
    if rng.random() < 0.02:
        size = rng.choice([size + 1, size - 1, size * 2, 0, 7, 2**31 - 1, 2**31, 2**32 - 1, 90 << 20, 1 << 20])
    return Shot(number, data, size)


def refused() -> set[Pair]:
    """Advertised for the sake of old clients, but not spoken: who sends them is hung up on."""
    return {(key, version) for key, (low, _) in SERVED.items() for version in range(low, APIS[key].min)}


def right_shot(seed: int, attempt: int, pair: Pair, ids: list[bytes]) -> Shot:
    key, version = pair
    if pair in refused():
        data = struct.pack(">hhih", key, version, attempt, -1) + bytes(20)
    else:
        data = Maker(random.Random(f"{seed}:{key}:{version}:{attempt}"), ids).frame(key, version, attempt).body()
    return Shot(attempt, data, len(data))


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


class Attack:
    def __init__(self, address: tuple[str, int], seed: int, ids: list[bytes], numbers: range, rate: float) -> None:
        self.address = address
        self.seed = seed
        self.ids = ids
        self.numbers = iter(numbers)
        self.again: deque[int] = deque()  # were sent behind a frame that the broker hung up on, so were never read
        self.rate = rate
        self.started = time.monotonic()
        self.stop_at = float("inf")
        self.sent = 0
        self.counts: Counter[str] = Counter()
        self.answered: Counter[Pair] = Counter()  # and the answer was right by the schema
        self.findings: list[str] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._worker() for _ in range(WORKERS)))

    async def _pace(self) -> None:
        ahead = self.sent / self.rate - (time.monotonic() - self.started)
        if ahead > 0:
            await asyncio.sleep(ahead)

    async def _worker(self) -> None:
        while not self.findings and time.monotonic() < self.stop_at:
            try:
                reader, writer = await asyncio.open_connection(*self.address, limit=ANSWER_BYTES_MAX)
            except OSError as error:
                self.findings.append(f"cannot connect: {error}")
                return
            self.counts["connections"] += 1
            burst: deque[Shot] = deque()
            try:
                alive = await self._converse(reader, writer, burst)
            except (OSError, asyncio.IncompleteReadError):
                self.counts["hung up on"] += 1
                self.again += [each.number for each in list(burst)[1:]]
                self.sent -= max(len(burst) - 1, 0)
                alive = True
            finally:
                writer.transport.abort()
            if not alive:
                return

    def _next(self) -> Shot | None:
        number = self.again.popleft() if self.again else next(self.numbers, None)
        return None if number is None else shot(self.seed, number, self.ids)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, burst: deque[Shot]) -> bool:
        """Until the broker hangs up, stays silent, or there is nothing left to send (False)."""
        while time.monotonic() < self.stop_at:
            await self._pace()
            burst.clear()
            while (made := self._next()) is not None:
                burst.append(made)
                if len(burst) > made.number % 3:
                    break
            if not burst:
                return False
            self.sent += len(burst)
            writer.write(b"".join(each.data for each in burst))
            wild = any(each.wild for each in burst)
            while burst:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        data = await read_answer(reader)
                except TimeoutError:
                    quiet = all(each.key == PRODUCE for each in burst)
                    self.counts["unanswered" if quiet or wild else "parked"] += 1
                    return True  # on a new connection: an answer that is only late would be taken for that of the next
                self.counts["answers"] += 1
                if not wild:
                    self._check(burst, data)
        return False

    def _check(self, burst: deque[Shot], data: bytes) -> None:
        (correlation,) = struct.unpack_from(">i", data)
        while burst:
            asked = burst.popleft()
            if asked.correlation == correlation:
                break
            if asked.key != PRODUCE:
                self.findings.append(f"seed {self.seed} frame {asked.number}: no answer, but the next one has its own")
                return
        else:
            self.findings.append(f"seed {self.seed}: an answer with correlation id {correlation}, which nobody asked")
            return
        version = asked.version
        low, high = SERVED.get(asked.key, (APIS[asked.key].min, APIS[asked.key].max))
        if asked.key == 18 and not low <= version <= high:
            version = 0
        try:
            _, position = read_response_header(memoryview(data), asked.key, version)
            _, end = decode(response_class(asked.key), version, data, position)
            assert end == len(data), f"{len(data) - end} bytes behind the answer"
        except (Malformed, AssertionError) as error:
            self.findings.append(f"seed {self.seed} frame {asked.number}: api {asked.key} v{version}: {error}")
        else:
            self.answered[asked.key, asked.version] += 1

    async def call_roll(self) -> None:
        for pair in [*PAIRS, *sorted(refused())]:
            if pair not in self.answered:
                self.counts["asked in the roll call"] += 1
                ending = await self._ask(pair)
                if ending != ("hung up on" if pair in refused() else "answered"):
                    self.findings.append(f"seed {self.seed} roll call: {APIS[pair[0]].name} v{pair[1]}: {ending}")

    async def _ask(self, pair: Pair) -> str:
        """How it ended, at the last try."""
        ending = "silence"
        for attempt in range(ROLL_CALL_TRIES):
            asked = right_shot(self.seed, attempt, pair, self.ids)
            reader, writer = await asyncio.open_connection(*self.address, limit=ANSWER_BYTES_MAX)
            try:
                writer.write(asked.data)
                async with asyncio.timeout(ROLL_CALL_SECONDS):
                    self._check(deque([asked]), await read_answer(reader))
                return "answered"
            except TimeoutError:
                ending = "silence"
            except (OSError, asyncio.IncompleteReadError):
                ending = "hung up on"
                if pair in refused():
                    break
            finally:
                writer.transport.abort()
        return ending


def topic_ids(bootstrap: str) -> list[bytes]:
    with Client.connect(bootstrap) as client:
        return [topic.topic_id for topic in client.metadata(None).topics.values() if topic.name.startswith("fuzz")]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--show", type=int)
    given = parser.parse_args()
    if given.show is not None:
        print(shot(given.seed, given.show, []).data.hex())
        return 0
    os.nice(10)
    host, _, port = given.bootstrap.rpartition(":")
    numbers = range(given.first, given.first + given.frames)
    attack = Attack((host, int(port)), given.seed, topic_ids(given.bootstrap), numbers, given.rate)
    if given.seconds:
        attack.stop_at = time.monotonic() + given.seconds
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack.run())
        met = len(attack.answered.keys() & set(PAIRS))
        if not attack.findings:
            runner.run(attack.call_roll())
    answered = attack.answered.keys() & set(PAIRS)
    print(json.dumps({
        "seed": given.seed,
        "frames": attack.sent,
        "seconds": round(time.monotonic() - attack.started, 1),
        "apis answered": len({key for key, _ in answered}),
        "versions answered": len(answered),
        "versions answered before the roll call": met,
        "versions": len(PAIRS),
        **attack.counts,
        "findings": attack.findings,
    }))  # fmt: skip
    return 1 if attack.findings else 0


if __name__ == "__main__":
    sys.exit(main())
