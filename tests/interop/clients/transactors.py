"""Transactional producers of every client that has them, each behind the same few words.

They live in a process: one that all tests share, or one of its own that can be killed. The words are lines (process.py)
that the programs understand.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from interop.clients.process import ANSWER_SECONDS, PROGRAMS_DIR, ClientProcess, shared_process
from programs import require_program

PYTHON_PROGRAM = Path(__file__).parents[1] / "programs" / "python" / "transactional.py"
IN_PYTHON = ("librdkafka", "aiokafka", "kafka_python")
numbers = itertools.count()


def command_of(client: str) -> list[str]:
    if client in IN_PYTHON:
        return [sys.executable, str(PYTHON_PROGRAM), client]
    return [require_program(str(PROGRAMS_DIR / client))]


class Read(NamedTuple):
    partition: int
    offset: int
    value: str


class Transactor:
    """One client; its producers are told apart by numbers. `seconds`: how long its own process may take to answer."""

    def __init__(self, client: str, bootstrap: str, *, own: bool = False, seconds: float = ANSWER_SECONDS) -> None:
        self.client = client
        self.bootstrap = bootstrap
        command = command_of(client)
        self.process = ClientProcess(command, seconds) if own else shared_process(command)

    def ask(self, op: str, **arguments: object) -> object:
        return self.process.ask(f"txn.{op}", bootstrap=self.bootstrap, **arguments)

    def reader(self, topic: str, group: str | None = None, count: int = 500) -> CommittedReader:
        return CommittedReader(self, topic, group, count)

    def producer(self, transactional_id: str, timeout_ms: int = 20_000) -> TransactionalProducer:
        return TransactionalProducer(self, transactional_id, timeout_ms)

    def read(self, topic: str, *, committed: bool = True) -> list[Read]:
        """Everything up to the present end, or to the last stable offset."""
        found = self.ask("read", topic=topic, committed=committed)
        assert isinstance(found, list)
        return [Read(*line) for line in found]

    def values(self, topic: str, *, committed: bool = True) -> list[str]:
        return sorted(record.value for record in self.read(topic, committed=committed))

    def transform(
        self,
        transactional_id: str,
        group: str,
        source: str,
        target: str,
        count: int,
        batch: int = 20,
        seconds: float = 50,
    ) -> None:
        """Copies a topic of `count` records into another one, exactly once, as a member of a group."""
        self.ask(
            "transform",
            transactional_id=transactional_id,
            group=group,
            source=source,
            target=target,
            count=count,
            batch=batch,
            seconds=seconds,
            timeout_ms=10_000,
        )


class TransactionalProducer:
    """Initialized when it is made; that ends whatever an earlier one with the same id has left open."""

    def __init__(self, transactor: Transactor, transactional_id: str, timeout_ms: int) -> None:
        self.transactor = transactor
        self.name = f"producer-{next(numbers)}"
        transactor.ask("open", producer=self.name, transactional_id=transactional_id, timeout_ms=timeout_ms)

    def send(self, topic: str, partition: int, *values: str) -> list[int]:
        """Into the open transaction, which the first of them begins; acknowledged at these offsets."""
        offsets = self.transactor.ask("send", producer=self.name, topic=topic, partition=partition, values=list(values))
        assert isinstance(offsets, list)
        return offsets

    def commit_offsets(self, reader: CommittedReader, ends: Mapping[int, int]) -> None:
        """Of the reader's group, in the open transaction, by partition."""
        pairs = [[partition, end] for partition, end in ends.items()]
        self.transactor.ask("offsets", producer=self.name, reader=reader.name, topic=reader.topic, ends=pairs)

    def end(self, *, commit: bool) -> None:
        self.transactor.ask("end", producer=self.name, commit=commit)

    def close(self) -> None:
        self.transactor.ask("close", producer=self.name)


class CommittedReader:
    """A consumer of committed records that stays: of all partitions from their beginning, or a member of a group.

    Only librdkafka, aiokafka and Java have it.
    """

    def __init__(self, transactor: Transactor, topic: str, group: str | None, count: int) -> None:
        self.transactor = transactor
        self.topic = topic
        self.count = count
        self.name = f"reader-{next(numbers)}"
        transactor.ask("follow", reader=self.name, topic=topic, group=group, count=count)

    def poll(self) -> list[Read]:
        """What there is, at most `count` records; waits a little if there is nothing."""
        found = self.transactor.ask("poll", reader=self.name, count=self.count)
        assert isinstance(found, list)
        return [Read(*line) for line in found]

    def rewind(self) -> None:
        """To what the group has committed, for the partitions that this member has now."""
        self.transactor.ask("rewind", reader=self.name)
