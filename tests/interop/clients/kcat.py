"""kcat: one process per question, records framed by control characters on the way in and by lengths on the way out."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import IO, ClassVar

from confluent_kafka import KafkaError

from interop.clients.contract import Got, Headers, Refused, Sent

SECONDS = 60.0
KEY_END, RECORD_END = "\x01", "\x02"
FORMAT = "%p %o %T %K %S\n%k%s%h\n"
ONLY_ADMIN = "kcat has no admin requests"
REASONS = {KafkaError(code).str(): code for code in range(1, 100)}


def refusal(stderr: bytes) -> Refused:
    text = stderr.decode(errors="replace").strip()
    for reason, code in REASONS.items():
        if reason in text:
            return Refused(code, text)
    return Refused(-1, text)


def headers_of(text: str) -> Headers:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)


def read_record(stream: IO[bytes]) -> Got | None:
    """One record of FORMAT, None at the end of the stream."""
    head = stream.readline()
    if not head:
        return None
    partition, offset, timestamp, key_size, value_size = (int(number) for number in head.split())
    key = stream.read(key_size) if key_size >= 0 else None
    value = stream.read(value_size) if value_size >= 0 else None
    headers = headers_of(stream.readline().decode().rstrip("\n"))
    return Got(partition, offset, timestamp, key, value, headers)


def records_of(stream: IO[bytes]) -> Iterator[Got]:
    while (record := read_record(stream)) is not None:
        yield record


class KcatReader:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.arrived: queue.Queue[Got] = queue.Queue()
        self.thread = threading.Thread(target=self.pump, daemon=True)
        self.thread.start()

    def pump(self) -> None:
        assert self.process.stdout is not None
        for record in records_of(self.process.stdout):
            self.arrived.put(record)

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        taken: list[Got] = []
        deadline = time.monotonic() + seconds
        try:
            while len(taken) < count:
                taken.append(self.arrived.get(timeout=max(0.001, deadline - time.monotonic())))
        except queue.Empty:
            return taken
        return taken

    def seek(self, partition: int, offset: int) -> None:
        raise NotImplementedError(KcatClient.lacks["seek"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class KcatClient:
    name: ClassVar[str] = "kcat"
    lacks: ClassVar[Mapping[str, str]] = {
        "admin": ONLY_ADMIN,
        "incremental alter": ONLY_ADMIN,
        "commit": "kcat commits only as a member of a group",
        "consumer protocol": "Debian's kcat has a librdkafka of before KIP-848",
        "delivery report": "kcat does not print the offsets it was given",
        "create time": "kcat cannot set a record's timestamp",
        "transactions": "kcat has no transactions",
        "seek": "kcat reads once, from where it was started",
        "clean end": "told to end, kcat commits a record that it has read and not printed",
    }

    def __init__(self, bootstrap: str) -> None:
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
        version = re.search(r"Version (\S+).*librdkafka (\S+)", said.stdout + said.stderr)
        self.version = f"{version[1]}, librdkafka {version[2]}" if version else "unknown"
        self.bootstrap = bootstrap

    def close(self) -> None:
        return None

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        line = ["kcat", "-b", self.bootstrap, "-m", "10", *arguments]
        done = subprocess.run(line, input=stdin, capture_output=True, timeout=SECONDS * 2, check=False)
        if done.returncode != 0 or b"Delivery failed" in done.stderr:
            raise refusal(done.stderr)
        return done.stdout

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        size_max: int = 1_000_000,
    ) -> list[int]:
        """Headers and partition are per process, so records that differ in them go by several."""
        options = ["-z", codec, "-X", f"acks={acks}", "-X", f"message.max.bytes={size_max}"]
        options += ["-X", f"enable.idempotence={'true' if idempotent else 'false'}"]
        options += ["-X", f"message.timeout.ms={int(SECONDS * 1000)}"]
        for (partition, headers), group in groupby(records, key=lambda record: (record.partition, record.headers)):
            place = [] if partition is None else ["-p", str(partition)]
            for name, value in headers:
                place += ["-H", name if value is None else f"{name}={value.decode()}"]
            lines = [
                (b"" if record.key is None else record.key + KEY_END.encode())
                + (record.value or b"")
                + RECORD_END.encode()
                for record in group
            ]
            framing = ["-D", RECORD_END, "-K", KEY_END, "-Z"]
            self.run("-P", "-t", topic, *place, *framing, *options, stdin=b"".join(lines))
        return []

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        wanted = list(partitions)
        first = "beginning" if start == -2 else str(start)
        place = ["-p", str(wanted[0])] if len(wanted) == 1 else []
        line = ["kcat", "-b", self.bootstrap, "-m", "10", "-C", "-q", "-t", topic, *place, "-o", first, "-e"]
        line += ["-X", f"max.partition.fetch.bytes={size_max}", "-X", "auto.offset.reset=error", "-f", FORMAT]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            timer = threading.Timer(SECONDS * 2, process.kill)
            timer.start()
            try:
                assert process.stdout is not None and process.stderr is not None
                records = list(records_of(process.stdout))
                problem = process.stderr.read()
                if process.wait() != 0:
                    raise refusal(problem)
            finally:
                timer.cancel()
        return records

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> KcatReader:
        first = "end" if start == -1 else str(start)
        line = ["kcat", "-b", self.bootstrap, "-C", "-q", "-u", "-t", topic, "-p", str(partition), "-o", first]
        line += ["-X", f"fetch.wait.max.ms={wait_ms}", "-X", "fetch.error.backoff.ms=50", "-f", FORMAT]
        return KcatReader(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))

    def partitions(self, topic: str) -> int:
        for known in json.loads(self.run("-L", "-J"))["topics"]:
            if known["topic"] == topic:
                return len(known["partitions"])
        return 0

    def query(self, topic: str, partition: int, timestamp: int) -> int:
        said = self.run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        found = re.search(r"offset (-?\d+)", said)
        assert found is not None, said
        return int(found[1])

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self.query(topic, partition, -2), self.query(topic, partition, -1)

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = self.query(topic, partition, timestamp)
        return None if found < 0 else found

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError(ONLY_ADMIN)

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError(ONLY_ADMIN)

    def add_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError(ONLY_ADMIN)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        raise NotImplementedError(ONLY_ADMIN)

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        raise NotImplementedError(ONLY_ADMIN)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        raise NotImplementedError(ONLY_ADMIN)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError(self.lacks["commit"])

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        raise NotImplementedError(self.lacks["commit"])
