"""A raw producer that notices how long a partition stands still: one small record after another, acks=all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from bench.clusters import described
from bench.librdkafka import LoadFailed
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.errors import ClientError
from cairnmq.codec.records import Record, build_batch
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

PAUSE = 0.01  # between two records, and before the next try: as exact as an outage is
PATIENCE = 0.5  # with a broker that says nothing: another one may lead by now
REQUEST_MS = 30_000


class Probe:
    """One partition, on a thread of its own. `acknowledged`: when each acknowledgement came."""

    def __init__(self, ports: Mapping[int, int], topic: str, partition: int) -> None:
        self.partition = partition
        self.acknowledged: list[float] = []
        self.lost = ""
        self._ports = ports
        self._doors = deque(ports.values())
        self._topic = topic
        self._topic_id = bytes(16)
        self._leader: Pipe | None = None
        self._offset = -1
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"probe-{partition}")

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE):
            try:
                if self._leader is None:
                    self._leader = self._find_leader()
                if self._leader is not None and not self._send(self._leader):
                    self._forget_leader()
            except (OSError, ClientError):
                self._forget_leader()
        self._forget_leader()

    def _forget_leader(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    def _find_leader(self) -> Pipe | None:
        """As the broker knows it that answered last, or else the next one. It may be one that is dead."""
        try:
            topic = described(self._doors[0], [self._topic], PATIENCE).topics[0]
        except (OSError, ClientError):
            self._doors.rotate()
            raise
        self._topic_id = topic.topic_id
        leader = next((row.leader_id for row in topic.partitions if row.partition_index == self.partition), -1)
        return Pipe(self._ports[leader], PATIENCE) if leader in self._ports else None

    def _send(self, leader: Pipe) -> bool:
        """False: it is not the leader, or could not store it."""
        records = build_batch([Record(0, int(time.time() * 1000), None, b"probe")])
        row = ProduceRequest.PartitionProduceData(index=self.partition, records=records)
        data = ProduceRequest.TopicProduceData(name=self._topic, topic_id=self._topic_id, partition_data=[row])
        answer = leader.ask(ProduceRequest(acks=-1, timeout_ms=REQUEST_MS, topic_data=[data]))
        assert isinstance(answer, ProduceResponse)
        stored = answer.responses[0].partition_responses[0]
        if stored.error_code:
            return False
        if stored.base_offset <= self._offset:
            self.lost = f"partition {self.partition}: offset {self._offset} was acknowledged, then {stored.base_offset}"
        self._offset = stored.base_offset
        self.acknowledged.append(time.monotonic())
        return True


class Probes:
    """One for each partition of a topic. Every acknowledged record must stay: offsets only grow."""

    def __init__(self, ports: Mapping[int, int], topic: str, partitions: int) -> None:
        self.each = [Probe(ports, topic, partition) for partition in range(partitions)]

    def longest(self, begin: float) -> float:
        """How long the partition stood still that did so longest, since then; one that still does counts until now."""
        for probe in self.each:
            if probe.lost:
                raise LoadFailed(probe.lost)
        now = time.monotonic()
        return max(longest_gap([*probe.acknowledged, now], begin) for probe in self.each)

    def all_since(self, moment: float) -> bool:
        """Each partition acknowledged something since then."""
        return all(probe.acknowledged and probe.acknowledged[-1] >= moment for probe in self.each)

    def __enter__(self) -> Probes:
        for probe in self.each:
            probe.start()
        return self

    def __exit__(self, *_: object) -> None:
        for probe in self.each:
            probe.end()


def longest_gap(times: Sequence[float], begin: float) -> float:
    """Between two moments of which the later one is not before `begin`."""
    return max((late - early for early, late in zip(times, times[1:], strict=False) if late >= begin), default=0.0)


def leader_of_most(leaders: Iterable[int]) -> int:
    """The broker that leads most of the partitions; of several the first."""
    led = sorted(leaders)
    return max(dict.fromkeys(led), key=led.count)
