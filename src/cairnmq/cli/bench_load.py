"""Load by our own client: batches at a rate or as fast as answers come, records read back, stamped records timed."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from cairnmq.cli.bench_figures import Figures, Took, figures
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError, GaveUp, Refused
from cairnmq.client.records import EARLIEST, LATEST
from cairnmq.client.session import Topic
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

REQUEST_BYTES = 1024 * 1024
RECORD_BYTES_EXTRA = 12  # of framing, about
STAMP_BYTES = 8
WAIT_SECONDS = 1.0
FETCH_BYTES = 50 * 1024 * 1024
FETCH_WAIT_MS = 100

Maker = Callable[[Sequence[int]], Buffer]
"""A batch of records that were due at these times (nanoseconds of this machine's clock)."""


class Settings(Struct, frozen=True):
    """How a producer sends; the names are those of Kafka's producer."""

    record_bytes: int = 1000
    acks: int = -1
    batch_bytes: int = 64 * 1024
    in_flight: int = 5
    codec: int = 0
    timeout: float = 30.0

    @property
    def batch_records(self) -> int:
        return max(1, self.batch_bytes // (self.record_bytes + RECORD_BYTES_EXTRA))


def same_bytes(settings: Settings) -> Maker:
    """Every batch of a length has the same bytes, built once: what is measured is the broker, not this program."""
    value, now_ms = os.urandom(settings.record_bytes), int(time.time() * 1000)

    @cache
    def build(count: int) -> bytes:
        return build_batch([Record(0, now_ms, None, value)] * count, codec=settings.codec)

    return lambda dues: build(len(dues))


def stamped(settings: Settings) -> Maker:
    """Records that carry when they were due."""
    padding = os.urandom(max(0, settings.record_bytes - STAMP_BYTES))

    def build(dues: Sequence[int]) -> bytes:
        now_ms = int(time.time() * 1000)
        records = [Record(0, now_ms, None, due.to_bytes(STAMP_BYTES, "big") + padding) for due in dues]
        return build_batch(records, codec=settings.codec)

    return build


class _Lane:
    """The partitions of one broker, which take turns, and the requests to it that are not answered yet."""

    def __init__(self, pipe: Pipe, partitions: Sequence[int], batches: int) -> None:
        self.pipe = pipe
        self.partitions = partitions
        self.batches = min(batches, len(partitions))
        self.at = 0
        self.waiting: deque[list[list[int]]] = deque()
        self.heard = 0  # when it answered last, or began to owe an answer

    def next_partitions(self, count: int) -> Iterator[int]:
        for _ in range(min(count, self.batches)):
            yield self.partitions[self.at]
            self.at = (self.at + 1) % len(self.partitions)


class Producer:
    """Sends to all partitions of a topic in turn and times every record from when it was due."""

    def __init__(self, client: Client, topic: Topic, settings: Settings, make: Maker) -> None:
        self.topic = topic
        self.settings = settings
        self.make = make
        self.took: list[Took] = []
        by_leader: dict[int, list[int]] = {}
        for partition in topic.partitions:
            by_leader.setdefault(client.session.leader(topic, partition.index), []).append(partition.index)
        batches = max(1, REQUEST_BYTES // settings.batch_bytes)
        self.lanes = []
        for node, partitions in by_leader.items():
            address = client.session.nodes[node]
            pipe = Pipe(address.port, settings.timeout, address.host, "cairn-bench")
            self.lanes.append(_Lane(pipe, partitions, batches))

    def run(self, records: int, rate: float | None, progress: Callable[[int], None] = lambda _: None) -> Figures:
        """With a rate: open loop, records are due by the clock however late answers are."""
        begin = time.monotonic_ns()
        sent, answered_at = 0, begin
        while sent < records or any(lane.waiting for lane in self.lanes):
            now = time.monotonic_ns()
            due = records if rate is None else min(records, int((now - begin) * rate / 1e9) + 1)
            for lane in self.lanes:
                while sent < due and len(lane.waiting) < self.settings.in_flight:
                    sent += self._send(lane, begin, sent, due, rate)
            progress(sent)
            wait = min(WAIT_SECONDS, self.settings.timeout)
            if rate is not None and sent < records:
                wait = max(0.0, min(wait, (begin + sent * 1e9 / rate - time.monotonic_ns()) / 1e9))
                if any(len(lane.waiting) < self.settings.in_flight for lane in self.lanes) and sent < due:
                    wait = 0.0
            if self._receive(wait):
                answered_at = time.monotonic_ns()
            self._refuse_silence()
        return figures(self.settings.record_bytes, (max(answered_at, begin + 1) - begin) / 1e9, self.took)

    def close(self) -> None:
        for lane in self.lanes:
            lane.pipe.close()

    def _send(self, lane: _Lane, begin: int, first: int, due: int, rate: float | None) -> int:
        """One request; gives how many records were in it."""
        size = self.settings.batch_records
        room = -(-(due - first) // size)
        rows, parts, taken = [], [], 0
        for partition in lane.next_partitions(room):
            count = min(size, due - first - taken)
            if rate is None:
                dues = [time.monotonic_ns()] * count
            else:
                dues = [begin + int(number * 1e9 / rate) for number in range(first + taken, first + taken + count)]
            rows.append(ProduceRequest.PartitionProduceData(index=partition, records=self.make(dues)))
            parts.append(dues)
            taken += count
        data = ProduceRequest.TopicProduceData(name=self.topic.name, topic_id=self.topic.topic_id, partition_data=rows)
        acks, timeout_ms = self.settings.acks, int(self.settings.timeout * 1000)
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
        lane.pipe.send(request, answered=acks != 0)
        if acks == 0:
            self._note(parts)
        else:
            if not lane.waiting:
                lane.heard = time.monotonic_ns()
            lane.waiting.append(parts)
        return taken

    def _receive(self, seconds: float) -> bool:
        """Takes the answers that are there, waiting up to so long for the first."""
        lanes = {lane.pipe.socket: lane for lane in self.lanes if lane.waiting}
        if not lanes:
            time.sleep(seconds if self.settings.acks else 0)
            return self.settings.acks == 0
        ready = select.select(list(lanes), [], [], seconds)[0]
        for each in ready:
            answer = lanes[each].pipe.receive()
            assert isinstance(answer, ProduceResponse)
            for row in (row for named in answer.responses for row in named.partition_responses):
                if row.error_code:
                    raise Refused(row.error_code, f"partition {self.topic.name}-{row.index}", row.error_message)
            self._note(lanes[each].waiting.popleft())
            lanes[each].heard = time.monotonic_ns()
        return bool(ready)

    def _refuse_silence(self) -> None:
        now = time.monotonic_ns()
        for lane in self.lanes:
            if lane.waiting and now - lane.heard > self.settings.timeout * 1e9:
                raise GaveUp(f"{lane.pipe.state.address} did not respond for {self.settings.timeout:g} s")

    def _note(self, parts: list[list[int]]) -> None:
        now = time.monotonic_ns()
        for dues in parts:
            if dues[0] == dues[-1]:
                self.took.append(Took(now - dues[0], len(dues)))
            else:
                self.took.extend(Took(now - due) for due in dues)


def positions(client: Client, topic: Topic, timestamp: int) -> dict[int, int]:
    listed = client.list_offsets(topic.name, [partition.index for partition in topic.partitions], timestamp)
    return {index: found.offset for index, found in listed.items()}


def consume(client: Client, topic: Topic, limit: int | None, progress: Callable[[int], None]) -> Figures:
    """Reads what is there now, or so many records, from the start; batches are counted, not taken apart."""
    at, ends = positions(client, topic, EARLIEST), positions(client, topic, LATEST)
    start = time.perf_counter()
    records = size = 0
    while limit is None or records < limit:
        wanted = {index: offset for index, offset in at.items() if offset < ends[index]}
        if not wanted:
            break
        for fetched in client.fetch({topic.name: wanted}, max_wait_ms=FETCH_WAIT_MS, max_bytes=FETCH_BYTES):
            if fetched.error:
                raise Refused(fetched.error, f"partition {topic.name}-{fetched.partition}")
            for batch in fetched.batches:
                header = read_header(batch)
                records += header.count
                size += len(batch)
                at[fetched.partition] = header.last_offset + 1
        progress(records)
    return Figures(records, size, time.perf_counter() - start)


class Follower(threading.Thread):
    """Reads stamped records at the end of a topic, on a connection of its own."""

    def __init__(self, client: Client, topic: Topic, records: int) -> None:
        super().__init__(daemon=True)
        self.took: list[Took] = []
        self.trouble: Exception | None = None
        self._client = client
        self._topic = topic
        self._wanted = records
        self._at = positions(client, topic, LATEST)
        self._deadline = time.monotonic() + client.timeout

    def run(self) -> None:
        try:
            while len(self.took) < self._wanted:
                self._read()
        except (ClientError, OSError) as trouble:
            self.trouble = trouble

    def _read(self) -> None:
        found = self._client.fetch({self._topic.name: self._at}, max_wait_ms=FETCH_WAIT_MS)
        now = time.monotonic_ns()
        for fetched in found:
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Refused(fetched.error, f"partition {self._topic.name}-{fetched.partition}")
            for batch in fetched.batches:
                for record in decode_batch(batch):
                    if record.value is not None and record.offset >= self._at[fetched.partition]:
                        self.took.append(Took(now - int.from_bytes(record.value[:STAMP_BYTES], "big")))
                        self._at[fetched.partition] = record.offset + 1
                        self._deadline = time.monotonic() + self._client.timeout
        if time.monotonic() > self._deadline:
            raise GaveUp(
                f"{len(self.took)} of {self._wanted} records came back, then none for {self._client.timeout:g} s"
            )
