"""Load programs of the bench that run beside it: readers and hot neighbours have an interpreter of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from confluent_kafka import TopicPartition

from bench.commits import commit_all
from bench.librdkafka import SECONDS, Errors, LoadFailed, consumer, producer
from bench.load import read_records
from bench.pace import SIZE, OpenLoop, Phase, Sample, stamped
from bench.results import ROOT

QUIET_SECONDS = 30.0
MEMBER_QUIET_SECONDS = 3.0


class Child:
    """A function of this module in another process: says `ready`, later its result."""

    def __init__(self, name: str, *arguments: object) -> None:
        line = [sys.executable, "-m", "bench.child", name, *map(str, arguments)]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.out = self.process.stdout
        if self.out.readline().strip() != b"ready":
            self.close()
            raise LoadFailed(f"the {name} did not start")

    def result(self) -> Any:
        """Waits for it."""
        text = self.out.read()
        if self.process.wait(SECONDS) or not text:
            raise LoadFailed("a load program beside the bench failed")
        return msgspec.json.decode(text)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        if self.running:
            self.process.kill()
        self.process.wait(SECONDS)
        self.out.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def follow(bootstrap: str, topic: str, partitions: str, total: str, before: str = "0") -> list[Sample]:
    """Reads so many stamped records as they come: how long after it was due was each one here? It is ready when it has
    read those that were there before."""
    reader = assigned(bootstrap, topic, int(partitions))
    seen: list[Sample] = []

    def take() -> None:
        for message in reader.consume(1000, 0.0) or [reader.poll(1.0)]:
            if message is None:
                continue
            if message.error():
                raise LoadFailed(str(message.error()))
            due = stamped(message.value())
            seen.append(Sample(due, time.monotonic_ns() - due))

    def take_until(wanted: int) -> None:
        count, quiet_since = len(seen), time.monotonic()
        while len(seen) < wanted and time.monotonic() - quiet_since < QUIET_SECONDS:
            take()
            if len(seen) > count:
                count, quiet_since = len(seen), time.monotonic()
        if len(seen) < wanted:
            raise LoadFailed(f"{wanted} records sent, {len(seen)} read")

    take()  # connects
    take_until(int(before))
    say_ready()
    take_until(int(before) + int(total))
    reader.close()
    return seen[int(before) :]


def read(bootstrap: str, topic: str, partitions: str, total: str) -> float:
    """Reads so many records as fast as it can; seconds."""
    reader = assigned(bootstrap, topic, int(partitions))
    say_ready()
    start = time.perf_counter()
    read_records(reader, int(total))
    reader.close()
    return time.perf_counter() - start


def pace(bootstrap: str, topic: str, partitions: str, rate: str, seconds: str) -> float:
    """Sends at a rate; gives the rate that it reached."""
    loop = OpenLoop(bootstrap, topic, int(partitions), linger_ms=5, timed=False)
    say_ready()
    start = time.perf_counter()
    loop.run(Phase(float(seconds), float(rate)))
    return float(seconds) * float(rate) / (time.perf_counter() - start)


def flood(bootstrap: str, topic: str, partitions: str, seconds: str) -> float:
    """Sends as fast as it can; records a second, until the last report."""
    # A short queue: what waits in the client when time is up would still have to be sent.
    sender, errors = producer(bootstrap, acks="1", **{"queue.buffering.max.messages": 100_000}), Errors()
    value, count = os.urandom(SIZE), 0
    say_ready()
    start = time.perf_counter()
    while time.perf_counter() - start < float(seconds):
        for _ in range(1000):
            try:
                sender.produce(topic, value, partition=count % int(partitions), on_delivery=errors.report)
                count += 1
            except BufferError:
                sender.poll(0.005)
        sender.poll(0)
    errors.check(sender)
    return count / (time.perf_counter() - start)


def transact(bootstrap: str, topic: str, partitions: str, producers: str, seconds: str) -> tuple[float, list[float]]:
    """Producers, one transaction after another each: a record for every partition; seconds until the last one was
    committed, and those that each one took."""
    senders = []
    for number in range(int(producers)):
        sender = producer(bootstrap, **{"transactional.id": f"{topic}-{number}", "linger.ms": 0, "acks": "all"})
        sender.init_transactions(SECONDS)
        senders.append(sender)
    say_ready()
    value, begin = os.urandom(100), time.perf_counter()
    end = begin + float(seconds)

    def run(sender: Any) -> list[float]:
        took: list[float] = []
        while (start := time.perf_counter()) < end:
            sender.begin_transaction()
            for partition in range(int(partitions)):
                sender.produce(topic, value, partition=partition)
            sender.commit_transaction(SECONDS)
            took.append(time.perf_counter() - start)
        return took

    with ThreadPoolExecutor(len(senders)) as pool:
        took = [each for some in pool.map(run, senders) for each in some]
    return time.perf_counter() - begin, took


def member(bootstrap: str, topic: str, group: str) -> tuple[int, float]:
    """A member of a group that commits every second; how many records it read, and when the last one (by the machine's
    monotonic clock). It ends when nothing came for a while."""
    reader = consumer(bootstrap, **{"group.id": group, "enable.auto.commit": True, "auto.commit.interval.ms": 1000})
    has_part = threading.Event()
    reader.subscribe([topic], on_assign=lambda _, partitions: has_part.set() if partitions else None)
    count, last = 0, 0.0
    deadline = time.monotonic() + SECONDS
    while not has_part.is_set() and time.monotonic() < deadline:
        if reader.poll(0.1) is not None:
            count, last = count + 1, time.monotonic()
    say_ready()
    while time.monotonic() < deadline and (not last or time.monotonic() - last < MEMBER_QUIET_SECONDS):
        for message in reader.consume(10_000, 0.2):
            if message.error():
                raise LoadFailed(str(message.error()))
            count, last = count + 1, time.monotonic()
    reader.close()
    return count, last


def commit(bootstrap: str, topic: str, groups: str, seconds: str) -> int:
    """Groups that commit an offset each, one after another; how many commits were answered with no error."""
    return asyncio.run(commit_all(bootstrap, topic, int(groups), float(seconds), say_ready))


def assigned(bootstrap: str, topic: str, partitions: int) -> Any:
    reader = consumer(bootstrap, **{"fetch.wait.max.ms": 500})
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return reader


PROGRAMS: dict[str, Callable[..., object]] = {
    program.__name__: program for program in (follow, read, pace, flood, transact, member, commit)
}

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(PROGRAMS[sys.argv[1]](*sys.argv[2:])))
