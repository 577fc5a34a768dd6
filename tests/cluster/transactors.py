"""Transactional producers on three brokers: each transaction writes to all partitions, and commits an offset."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.error import KafkaError

from cluster.brokers import Cluster

TOPIC, SOURCE = "transactions", "source"
PARTITIONS = 6
ABORTED = 0.25
PATIENCE_SECONDS = 30.0
QUIET_SECONDS = 5.0


class Transactor:
    """One transactional id. It begins anew when its client gives up, and knows how each transaction ended, if it was
    told."""

    def __init__(self, cluster: Cluster, name: str, seed: int, group: str) -> None:
        self.cluster = cluster
        self.name = name
        self.group = group
        self.random = Random(seed)
        self.told: dict[str, bool] = {}  # transaction -> whether it was committed
        self.offsets: dict[str, int] = {}  # transaction -> the offset that it committed
        self.trouble: Counter[str] = Counter()
        self._number = 0
        self._going = threading.Event()
        self._going.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def state(self) -> str:
        """For whoever waits in vain: what it was told, and where it is."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = traceback.extract_stack(frame)[-1] if frame is not None else "nowhere"
        return f"{self.name}: {len(self.told)} ends, {dict(self.trouble)}, at {where}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._going.clear()
        self._thread.join(4 * PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not come to an end"

    def _run(self) -> None:
        while self._going.is_set():
            try:
                self._live()
            except KafkaException as error:
                self.trouble[error.args[0].name()] += 1
                time.sleep(0.2)

    def _live(self) -> None:
        """One instance, until its client gives up."""
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "transactional.id": self.name,
            "transaction.timeout.ms": 20_000,
            "log_level": 0,
        }
        producer = Producer(settings)
        reader = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            producer.init_transactions(PATIENCE_SECONDS)
            while self._going.is_set():
                self._transact(producer, reader)
        finally:
            producer.purge()
            reader.close()

    def _transact(self, producer: Producer, reader: Consumer) -> None:
        self._number += 1
        name = f"{self.name}/{self._number}"
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, name, partition=partition)
        commit = self.random.random() >= ABORTED
        try:
            place = TopicPartition(SOURCE, 0, self._number)
            producer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), PATIENCE_SECONDS)
            if commit:
                producer.commit_transaction(PATIENCE_SECONDS)
            else:
                producer.abort_transaction(PATIENCE_SECONDS)
        except KafkaException as error:
            problem = error.args[0]
            self.trouble[problem.name()] += 1
            if not problem.txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE_SECONDS)
            commit = False
        self.told[name] = commit
        if commit:
            self.offsets[name] = self._number


def read(cluster: Cluster, *, committed: bool) -> dict[int, list[str]]:
    """All records of each partition up to its end, as this reader sees it."""
    level = "read_committed" if committed else "read_uncommitted"
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "judge",
        "isolation.level": level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    found: dict[int, list[str]] = defaultdict(list)
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + 4 * PATIENCE_SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"partitions {ended} of {PARTITIONS} were read to their ends"
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value().decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


def committed_offset(cluster: Cluster, group: str) -> int:
    """Of the one partition of the source; -1 without one."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        (place,) = consumer.committed([TopicPartition(SOURCE, 0)], PATIENCE_SECONDS)
    finally:
        consumer.close()
    return int(place.offset) if place.offset >= 0 else -1


def judge(cluster: Cluster, transactors: list[Transactor]) -> Counter[str]:
    """All partitions have all of a transaction or nothing, once, as its producer was told; so do groups."""
    tally: Counter[str] = Counter()
    seen = {partition: Counter(names) for partition, names in read(cluster, committed=True).items()}
    whole = set().union(*seen.values()) if seen else set()
    for name in sorted(whole):
        counts = [seen.get(partition, Counter())[name] for partition in range(PARTITIONS)]
        assert counts == [1] * PARTITIONS, f"{name} is in the partitions {counts} times"
    for one in transactors:
        for name, committed in one.told.items():
            assert (name in whole) is committed, f"{name} was told to be committed: {committed}; seen: {name in whole}"
            tally["commits" if committed else "aborts"] += 1
        at, least = committed_offset(cluster, one.group), max(one.offsets.values(), default=-1)
        assert at >= least, f"{one.group} is at {at}, and {least} was committed"
        assert at == -1 or f"{one.name}/{at}" in whole, f"{one.group} is at {at}, which was not committed"
        tally += one.trouble
    return tally
