"""Group members of a Python client in a process of their own (the lines: tests/interop/clients/process.py).

python program.py librdkafka|aiokafka|kafka_python. Each member is a thread that commits what it has shown.
"""

from __future__ import annotations

import asyncio
import json
import queue
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

SECONDS = 0.1
BATCH = 500
POLL_MS = 1_000
FORGOTTEN_SECONDS = 3.0
Place = tuple[str, int]
Shown = tuple[str, int, int, str]

printing = threading.Lock()


def print_line(line: dict[str, Any]) -> None:
    with printing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class Member(threading.Thread):
    """What the three have in common; `work` is the client's own."""

    def __init__(self, ask: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.ask = ask
        self.leaving = threading.Event()
        self.seeks: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self.owned: set[Place] = set()

    def tell(self, event: str, **more: Any) -> None:
        print_line({"event": event, "member": self.ask["member"], "at": time.time_ns() // 1000, **more})

    def moved(self, event: str, places: Iterable[Place]) -> None:
        named = list(places)
        if event == "assigned":
            self.owned.update(named)
        else:
            self.owned.difference_update(named)
        self.tell(event, partitions=named)

    def left(self) -> None:
        """Told as a move, before the broker may give it to another, and again of what it got while it was leaving: not
        every client calls back at its end."""
        if self.owned:
            self.moved("revoked", sorted(self.owned))

    def show(self, records: list[Shown]) -> None:
        self.tell("records", records=records)

    def uncommitted(self, problem: Exception) -> None:
        """A commit that a rebalance refuses is repeated by whoever reads these records again."""
        self.tell("uncommitted", text=str(problem))


class LibrdkafkaMember(Member):
    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        ask = self.ask
        settings = {
            "bootstrap.servers": ask["bootstrap"],
            "group.id": ask["group"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": ask["session_ms"],
            "heartbeat.interval.ms": ask["heartbeat_ms"],
            "topic.metadata.refresh.interval.ms": ask["metadata_ms"],
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky" if ask["cooperative"] else "range",
            "log_level": 2,
        }
        if ask["instance"] is not None:
            settings["group.instance.id"] = ask["instance"]
        if ask["protocol"] == "consumer":
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
                del settings[name]  # these are the broker's
            settings["group.protocol"] = "consumer"
        consumer = Consumer(settings)
        waiting: list[Shown] = []

        def flush() -> None:
            if not waiting:
                return
            self.show(waiting.copy())
            waiting.clear()
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as problem:
                self.uncommitted(problem)

        def told(event: str) -> Callable[[Any, list[TopicPartition]], None]:
            def tell(_: Any, places: list[TopicPartition]) -> None:
                flush()
                self.moved(event, [(place.topic, place.partition) for place in places])

            return tell

        topics = ask["topics"] if ask["pattern"] is None else [ask["pattern"]]
        consumer.subscribe(topics, on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("revoked"))
        while not self.leaving.is_set():
            while not self.seeks.empty():
                consumer.seek(TopicPartition(*self.seeks.get()))
            seconds = SECONDS
            while len(waiting) < BATCH and (message := consumer.poll(seconds)) is not None:
                if message.error() is None:
                    place = (message.topic(), message.partition(), message.offset())
                    waiting.append((*place, message.value().decode()))
                seconds = 0
            flush()
        consumer.close()


class AiokafkaMember(Member):
    def run(self) -> None:
        asyncio.run(self.consume())

    async def consume(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.errors import KafkaError

        ask = self.ask
        consumer = AIOKafkaConsumer(
            bootstrap_servers=ask["bootstrap"],
            group_id=ask["group"],
            group_instance_id=ask["instance"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=ask["session_ms"],
            heartbeat_interval_ms=ask["heartbeat_ms"],
            metadata_max_age_ms=ask["metadata_ms"],
            fetch_max_wait_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        # Rebalances run in a task of their own: they wait until what was read is shown and committed.
        busy = asyncio.Lock()

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(_, revoked: Iterable[TopicPartition]) -> None:
                async with busy:
                    self.moved("revoked", [(place.topic, place.partition) for place in revoked])

            async def on_partitions_assigned(_, assigned: Iterable[TopicPartition]) -> None:
                self.moved("assigned", [(place.topic, place.partition) for place in assigned])

        listener = Listener()
        if ask["pattern"] is None:
            consumer.subscribe(ask["topics"], listener=listener)
        else:
            consumer.subscribe(pattern=ask["pattern"], listener=listener)
        await consumer.start()
        while not self.leaving.is_set():
            while not self.seeks.empty():
                topic, partition, offset = self.seeks.get()
                consumer.seek(TopicPartition(topic, partition), offset)
            # Not while busy: during a rebalance this waits for its end.
            batches = await consumer.getmany(timeout_ms=int(SECONDS * 1000))
            records = [
                (record.topic, record.partition, record.offset, record.value.decode())
                for batch in batches.values()
                for record in batch
            ]
            if records:
                async with busy:
                    self.show(records)
                    try:
                        await consumer.commit()
                    except KafkaError as problem:
                        self.uncommitted(problem)
        self.left()
        await consumer.stop()
        self.left()


class KafkaPythonMember(Member):
    """When a poll's time is over between the answers to JoinGroup and SyncGroup, this client forgets that it was
    joining and never does (3.0.12). So polls are long, and a member that lost all and got nothing subscribes anew."""

    def run(self) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import KafkaConnectionError, KafkaError

        ask = self.ask
        consumer = KafkaConsumer(
            bootstrap_servers=ask["bootstrap"],
            group_id=ask["group"],
            group_instance_id=ask["instance"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=ask["session_ms"],
            heartbeat_interval_ms=ask["heartbeat_ms"],
            metadata_max_age_ms=ask["metadata_ms"],
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=[CooperativeStickyAssignor if ask["cooperative"] else RangePartitionAssignor],
        )

        joining_since: float | None = None

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(_, revoked: Iterable[TopicPartition]) -> None:
                nonlocal joining_since
                joining_since = time.monotonic()
                self.moved("revoked", [(place.topic, place.partition) for place in revoked])

            def on_partitions_assigned(_, assigned: Iterable[TopicPartition]) -> None:
                nonlocal joining_since
                joining_since = None
                self.moved("assigned", [(place.topic, place.partition) for place in assigned])

        def subscribe() -> None:
            if ask["pattern"] is None:
                consumer.subscribe(topics=ask["topics"], listener=Listener())
            else:
                consumer.subscribe(pattern=ask["pattern"], listener=Listener())

        subscribe()
        while not self.leaving.is_set():
            while not self.seeks.empty():
                topic, partition, offset = self.seeks.get()
                consumer.seek(TopicPartition(topic, partition), offset)
            if joining_since is not None and time.monotonic() - joining_since > FORGOTTEN_SECONDS:
                joining_since = None
                consumer.unsubscribe()
                subscribe()
            try:
                batches = consumer.poll(timeout_ms=POLL_MS)
            except KafkaConnectionError:
                time.sleep(SECONDS)  # the broker is away; to try again is left to the program
                continue
            records = [
                (record.topic, record.partition, record.offset, record.value.decode())
                for batch in batches.values()
                for record in batch
            ]
            if records:
                self.show(records)
                try:
                    consumer.commit()
                except KafkaError as problem:
                    self.uncommitted(problem)
        self.left()
        consumer.close()
        self.left()


KINDS = {"librdkafka": LibrdkafkaMember, "aiokafka": AiokafkaMember, "kafka_python": KafkaPythonMember}


def fail(problem: threading.ExceptHookArgs) -> None:
    assert isinstance(problem.thread, Member)
    problem.thread.tell("failed", text="".join(traceback.format_exception(problem.exc_value)))


def main(kind: type[Member]) -> None:
    members: dict[str, Member] = {}
    for line in sys.stdin:
        ask = json.loads(line)
        op = re.sub("^member[.]", "", ask["op"])
        if op == "join":
            members[ask["member"]] = member = kind(ask)
            member.start()
        elif op == "seek":
            members[ask["member"]].seeks.put((ask["topic"], ask["partition"], ask["offset"]))
        elif op == "leave":
            member = members.pop(ask["member"])
            member.leaving.set()
            member.join()
        print_line({"answer": None} if op in ("join", "seek", "leave") else {"broken": f"no such op: {ask['op']}"})


warnings.simplefilter("ignore", DeprecationWarning)
threading.excepthook = fail
main(KINDS[sys.argv[1]])
