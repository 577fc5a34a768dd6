"""Traffic of the cluster demo: a writer for each partition, one reader who checks, and a look at who leads."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable

from cairnmq.cli.demo_story import Gap
from cairnmq.cli.offset_spec import START, OffsetSpec
from cairnmq.cli.reader import Reader
from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError
from cairnmq.client.records import ProducerId
from cairnmq.client.session import Partition
from cairnmq.codec.records import Record, build_batch
from cairnmq.types import TopicPartition

ANSWER_SECONDS, PATIENCE_SECONDS = 2.0, 60.0
RETRY_SECONDS = 0.2
WRITE_SECONDS, LOOK_SECONDS = 0.05, 0.25
GAP_SECONDS = 0.2  # shorter ones are nothing to tell
GAPS_KEPT = 32


class Worker:
    """A thread with a client of its own, which begins again when the cluster fails it."""

    def __init__(self, bootstrap: str, name: str, work: Callable[[Client, threading.Event], None]) -> None:
        self.stopping = threading.Event()
        self.trouble = ""  # the last failure
        self._bootstrap = bootstrap
        self._client_id = f"demo-{name}"
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"demo-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                with Client.connect(
                    self._bootstrap, client_id=self._client_id, timeout=ANSWER_SECONDS, patience=PATIENCE_SECONDS
                ) as client:
                    self._work(client, self.stopping)
            except ClientError as failed:
                self.trouble = str(failed)
                self.stopping.wait(RETRY_SECONDS)


class Writer:
    """Numbers its records, and sends each until it is acknowledged by all in-sync replicas, once and in order."""

    def __init__(self, place: TopicPartition) -> None:
        self.acked = 0
        self.acked_at = time.monotonic()
        self.gaps: deque[Gap] = deque(maxlen=GAPS_KEPT)
        self._place = place
        self._producer: ProducerId | None = None

    def write(self, client: Client, stopping: threading.Event) -> None:
        if self._producer is None:
            self._producer = client.init_producer_id()
        while not stopping.is_set():
            value = json.dumps({"number": self.acked}).encode()
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, value, ())],
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=self.acked,  # sent again, it is recognised
            )
            client.produce(self._place.topic, self._place.partition, batch)
            self._acknowledged(time.monotonic())
            stopping.wait(WRITE_SECONDS)

    def _acknowledged(self, now: float) -> None:
        if now - self.acked_at > GAP_SECONDS:
            self.gaps.append(Gap(self.acked_at, now))
        self.acked, self.acked_at = self.acked + 1, now


class Checker:
    """Reads all partitions from the start, and counts every number that is missing or comes twice."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.read = 0
        self.wrong = 0
        self._next = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self._reader: Reader | None = None

    def follow(self, client: Client, stopping: threading.Event) -> None:
        reader = Reader(client, OffsetSpec(START))
        if self._reader is None:
            reader.add(self._next)
        else:
            reader.positions = self._reader.positions  # as far as an earlier client came
        self._reader = reader
        while not stopping.is_set():
            for place, record in reader.read():
                self.take(place, json.loads(bytes(record.value or b"{}"))["number"])

    def take(self, place: TopicPartition, number: int) -> None:
        self.read += 1
        if number != self._next[place]:
            self.wrong += 1
        self._next[place] = number + 1


class Look:
    """Who leads the partitions, as the brokers say."""

    def __init__(self, topic: str) -> None:
        self.partitions: tuple[Partition, ...] = ()
        self._topic = topic

    def look(self, client: Client, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self.partitions = client.metadata([self._topic]).topics[self._topic].partitions
            stopping.wait(LOOK_SECONDS)
