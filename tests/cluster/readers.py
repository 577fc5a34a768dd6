"""Consumers that read through everything: followers of whole topics, and members of groups of both protocols."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cluster.brokers import FAILURES, Cluster
from crash.ledger import Place
from crash.load import RETRY
from history.events import History, Result, Seen

POLL_SECONDS = 0.1
COMMIT_SECONDS = 0.3
ASK_SECONDS = 5.0
LOOK_SECONDS = 0.5
SOCKET_MS = 5_000
AT_ONCE = 200

FORBIDDEN = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
"""What no consumer may be told of a partition that it reads in order, whoever leads it."""


def common(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
        "socket.timeout.ms": SOCKET_MS,
        "topic.metadata.refresh.interval.ms": 1_000,
        **RETRY,
    }


def place_of(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return Place(topic, partition)


def seen_in(message: Message) -> Seen:
    offset = message.offset()
    assert offset is not None
    return Seen(offset, (message.value() or b"").decode())


class Reader:
    """A consumer on a thread of its own, until it is closed."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.problems: list[str] = []
        self.records = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        raise NotImplementedError

    def good(self, messages: Iterable[Message | None]) -> dict[Place, list[Seen]]:
        """What was read, in order; an error that is no error of the network is a problem."""
        found: dict[Place, list[Seen]] = defaultdict(list)
        for message in messages:
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[place_of(message)].append(seen_in(message))
                self.records += 1
            elif error.fatal() or error.code() in FORBIDDEN:
                self.problems.append(f"{self.name}: {error}")
        return found

    def close(self) -> None:
        self.stopping.set()
        if self.thread.is_alive():
            self.thread.join()


class Follower(Reader):
    """Reads some partitions from offset 0 on, from the replicas in its rack if it names one."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place], history: History, rack: str = "") -> None:
        super().__init__(name, history)
        self.reached = dict.fromkeys(places, -1)
        settings = {"group.id": name, "auto.offset.reset": "error", "client.rack": rack, **common(bootstrap)}
        self.consumer = Consumer(settings)
        self.consumer.assign([TopicPartition(*place, 0) for place in places])
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            asked = self.history.now()
            for place, seen in self.good(self.consumer.consume(AT_ONCE, POLL_SECONDS)).items():
                self.history.read(asked, place, seen, committed=True, reader=self.name)
                self.reached[place] = seen[-1].offset
        self.consumer.close()


class Member(Reader):
    """Commits what it has read. While it has a partition it is one reader of the history, and then another one."""

    def __init__(
        self, name: str, bootstrap: str, group: str, topics: Sequence[str], history: History, *, protocol: str
    ) -> None:
        super().__init__(name, history)
        self.group = group
        self.turns: dict[Place, int] = {}
        self.turn = 0
        self.ends: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        settings = {"group.id": group, "auto.offset.reset": "earliest", **common(bootstrap)}
        if protocol == "consumer":
            settings |= {"group.protocol": "consumer"}
        else:
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self.consumer = Consumer(settings)
        self.consumer.subscribe(list(topics), on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)
        self.thread.start()

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.turn += 1
            self.turns[Place(each.topic, each.partition)] = self.turn

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            place = Place(each.topic, each.partition)
            self.turns.pop(place, None)
            self.ends.pop(place, None)

    def run(self) -> None:
        due = time.monotonic() + COMMIT_SECONDS
        while not self.stopping.is_set():
            asked = self.history.now()
            # One at a time: a batch could hold records from before and after a rebalance.
            for place, seen in self.good([self.consumer.poll(POLL_SECONDS)]).items():
                reader = f"{self.name}/{self.turns.get(place, 0)}"
                self.history.read(asked, place, seen, committed=True, reader=reader, group=self.group)
                self.ends[place] = seen[-1].offset + 1
            if time.monotonic() > due:
                self.commit()
                due = time.monotonic() + COMMIT_SECONDS
        self.commit()
        self.consumer.close()

    def commit(self) -> None:
        ends = {place: end for place, end in self.ends.items() if self.committed.get(place) != end}
        if not ends:
            return
        commits = {place: self.history.commit(self.group, place, end) for place, end in ends.items()}
        done: list[TopicPartition] = []
        with suppress(KafkaException):  # then nothing is known
            offsets = [TopicPartition(*place, end) for place, end in ends.items()]
            done = self.consumer.commit(offsets=offsets, asynchronous=False) or []
        acked = {Place(each.topic, each.partition) for each in done if each.error is None}
        for place, commit in commits.items():
            self.history.answer(commit, Result.ACKED if place in acked else Result.UNKNOWN)
            if place in acked:
                self.committed[place] = ends[place]


class Asker(Reader):
    """Asks where groups are."""

    def __init__(self, bootstrap: str, group: str, places: Sequence[Place], history: History) -> None:
        super().__init__(f"where {group} is", history)
        self.group = group
        self.places = places
        self.consumer = Consumer({"group.id": group, **common(bootstrap)})
        self.answers = 0
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(2 * LOOK_SECONDS):
            self.ask()
        self.consumer.close()

    def ask(self) -> bool:
        asked = self.history.now()
        try:
            found = self.consumer.committed([TopicPartition(*place) for place in self.places], ASK_SECONDS)
        except KafkaException:
            return False
        for each in found:
            if each.error is None:
                offset = max(0, each.offset)
                self.history.position(asked, self.group, Place(each.topic, each.partition), offset)
        self.answers += 1
        return all(each.error is None for each in found)


class Observer(Reader):
    """Asks a broker who leads."""

    def __init__(self, cluster: Cluster, node: int, history: History) -> None:
        super().__init__(f"observer of {node}", history)
        self.cluster = cluster
        self.node = node
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> bool:
        asked = self.history.now()
        with suppress(*FAILURES):
            for place, row in self.cluster.described(self.node).items():
                self.history.leadership(asked, place, row.leader_epoch, self.node)
            return True
        return False
