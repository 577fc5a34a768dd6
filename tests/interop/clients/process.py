"""A client that is a program of its own (tests/interop/programs): JSON objects, one per line, on its stdin and stdout.

We write {"op": NAME, "bootstrap": HOST:PORT, ...}; it writes {"answer": VALUE}, {"refused": [CODE, TEXT]} or
{"broken": TRACE}, in order, one at a time. Between answers stand events of group members: {"event": NAME, ...}.
Keys and values of records are base64, null is null.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interop.clients.contract import REPLICAS, Got, Refused, Sent

PROGRAMS_DIR = Path(__file__).parents[3] / ".tools" / "bin"
ANSWER_SECONDS = 150.0
Event = dict[str, Any]


class ClientProcess:
    """One running program; killed with all it started."""

    def __init__(self, command: Sequence[str], seconds: float = ANSWER_SECONDS) -> None:
        """`seconds`: how long an answer may take."""
        self.seconds = seconds
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.listeners: dict[str, Callable[[Event], None]] = {}
        self.thread = threading.Thread(target=self.pump, daemon=True)
        self.thread.start()
        self.turn = threading.Lock()
        atexit.register(self.kill)

    def pump(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "event" in message:
                listener = self.listeners.get(message["member"])
                if listener is not None:
                    listener(message)
            else:
                self.answers.put(message)
        self.answers.put(None)

    def ask(self, op: str, **arguments: Any) -> Any:
        with self.turn:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
            try:
                answer = self.answers.get(timeout=self.seconds)
            except queue.Empty:
                self.kill()  # its next answer would be taken for that of another question
                raise AssertionError(f"no answer to {op} in {self.seconds:g} s") from None
        if answer is None:
            self.answers.put(None)  # whoever asks next need not wait either
        assert answer is not None, f"the client's program ended ({self.process.poll()}) instead of answering {op}"
        if "refused" in answer:
            raise Refused(*answer["refused"])
        assert "answer" in answer, f"{op}: {answer.get('broken')}"
        return answer["answer"]

    def kill(self) -> None:
        """kill -9 of the program and of whatever it started."""
        atexit.unregister(self.kill)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.thread.join(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


RUNNING: dict[tuple[str, ...], ClientProcess] = {}


def shared_process(command: Sequence[str]) -> ClientProcess:
    """The one process of this program that every test may use: its start is paid once."""
    key = tuple(command)
    if key not in RUNNING or RUNNING[key].process.poll() is not None:
        RUNNING[key] = ClientProcess(command)
    return RUNNING[key]


def text_of(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def got(line: list[Any]) -> Got:
    partition, offset, timestamp, key, value, headers, append_time = line
    named = tuple((name, bytes_of(content)) for name, content in headers)
    return Got(partition, offset, timestamp, bytes_of(key), bytes_of(value), named, append_time)


def line_of(record: Sent) -> dict[str, Any]:
    return {
        "value": text_of(record.value),
        "key": text_of(record.key),
        "headers": [[name, text_of(value)] for name, value in record.headers],
        "timestamp": record.timestamp,
        "partition": record.partition,
    }


class ProgramReader:
    def __init__(self, client: ProgramClient, name: str) -> None:
        self.client = client
        self.name = name

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        return [got(line) for line in self.client.ask("reader.take", reader=self.name, count=count, seconds=seconds)]

    def seek(self, partition: int, offset: int) -> None:
        self.client.ask("reader.seek", reader=self.name, partition=partition, offset=offset)

    def close(self) -> None:
        self.client.ask("reader.close", reader=self.name)


class ProgramClient:
    """Every question of the contract as one line; a subclass names the program."""

    name = ""
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.process = shared_process(self.command())
        self.version: str = self.ask("version")
        self.readers = 0

    @classmethod
    def command(cls) -> list[str]:
        return [str(PROGRAMS_DIR / cls.name)]

    def ask(self, op: str, **arguments: Any) -> Any:
        return self.process.ask(op, bootstrap=self.bootstrap, **arguments)

    def close(self) -> None:
        return None

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
        lines = list(map(line_of, records))
        offsets: list[int] = self.ask(
            "produce", topic=topic, records=lines, codec=codec, acks=acks, idempotent=idempotent, size_max=size_max
        )
        return offsets

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        lines = self.ask("read", topic=topic, partitions=list(partitions), start=start, size_max=size_max)
        return [got(line) for line in lines]

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> ProgramReader:
        self.readers += 1
        name = f"{id(self)}-{self.readers}"
        self.ask("reader.open", reader=name, topic=topic, partition=partition, start=start, wait_ms=wait_ms)
        return ProgramReader(self, name)

    def partitions(self, topic: str) -> int:
        return int(self.ask("partitions", topic=topic))

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.ask("bounds", topic=topic, partition=partition)
        return low, high

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found: int | None = self.ask("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return found

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.ask("create_topic", topic=topic, partitions=partitions, replicas=REPLICAS, configs=dict(configs or {}))

    def delete_topic(self, topic: str) -> None:
        self.ask("delete_topic", topic=topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self.ask("add_partitions", topic=topic, total=total)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.ask("topic_configs", topic=topic))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.ask("alter_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(self.ask("delete_records", topic=topic, partition=partition, before=before))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.ask("commit", group=group, topic=topic, partition=partition, offset=offset)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        found: int | None = self.ask("committed", group=group, topic=topic, partition=partition)
        return found
