"""Open loop: records are sent when they are due, whatever the answers do, and times count from when they were due."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from bench.librdkafka import Errors, producer
from bench.results import Values

SIZE = 1000
STAMP_BYTES = 8
BEGIN_NS = 10_000_000
PERCENTS = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))


class Phase(Struct, frozen=True):
    seconds: float
    rate: float


class Sample(Struct, frozen=True, gc=False):
    """A record's due time and how much later it was acknowledged (or read), in nanoseconds of the machine's clock."""

    due: int
    took: int


def due_times(begin: int, phases: Sequence[Phase]) -> Iterator[int]:
    for phase in phases:
        for number in range(int(phase.seconds * phase.rate)):
            yield begin + int(number * 1e9 / phase.rate)
        begin += int(phase.seconds * 1e9)


def percentiles(kind: str, nanoseconds: Sequence[int]) -> Values:
    ordered = sorted(nanoseconds)
    return {f"{kind}_{name}_ms": ordered[int(len(ordered) * share)] / 1e6 for name, share in PERCENTS}


def stamp(due: int) -> bytes:
    return due.to_bytes(STAMP_BYTES, "big")


def stamped(value: bytes) -> int:
    return int.from_bytes(value[:STAMP_BYTES], "big")


class OpenLoop:
    """One thread sends when records are due, another takes reports: neither waits for the other."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, linger_ms: int = 0, timed: bool = True) -> None:
        self.topic = topic
        self.partitions = partitions
        self.errors = Errors()
        settings: dict[str, object] = {"linger.ms": linger_ms, "acks": "1", "delivery.report.only.error": not timed}
        if linger_ms == 0:
            # librdkafka would send every record alone, however many wait. Kafka serves a connection one request at a
            # time, so its queue then only grows: that is saturation, not latency. Five is the Java client's limit.
            settings["max.in.flight.requests.per.connection"] = 5
        self.producer = producer(bootstrap, **settings)
        self.report = self._timed_report if timed else self.errors.report
        self.samples: list[Sample] = []
        self.late: list[int] = []

    def run(self, *phases: Phase) -> int:
        """Sends all and waits for every report; gives the moment when the first record was due."""
        ended = threading.Event()
        reports = threading.Thread(target=self._poll, args=(ended,))
        reports.start()
        begin = time.monotonic_ns() + BEGIN_NS
        padding = bytes(SIZE - STAMP_BYTES)
        clock, produce, late, report = time.monotonic_ns, self.producer.produce, self.late.append, self.report
        try:
            for number, due in enumerate(due_times(begin, phases)):
                now = clock()
                if due > now:
                    time.sleep((due - now) / 1e9)
                    now = clock()
                late(now - due)
                produce(self.topic, stamp(due) + padding, partition=number % self.partitions, on_delivery=report)
            self.errors.check(self.producer)
        finally:
            ended.set()
            reports.join()
        return begin

    def close(self) -> None:
        """Before the topic is deleted: a producer that still knows it would ask for it, and so make it anew."""
        del self.producer

    def _timed_report(self, error: object, message: object) -> None:
        due = stamped(message.value())  # type: ignore[attr-defined]
        self.samples.append(Sample(due, time.monotonic_ns() - due))
        self.errors.report(error, message)  # type: ignore[arg-type]

    def _poll(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self.producer.poll(0.1)


def between(samples: Sequence[Sample], begin: int, end: int | None = None) -> list[int]:
    return [sample.took for sample in samples if begin <= sample.due and (end is None or sample.due < end)]
