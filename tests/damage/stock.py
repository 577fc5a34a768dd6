"""Data directories made by a real broker under real clients, and everything that clients were told is in them.

Four of them: stopped in order; killed with a tail that nobody has split; the same with journals that were retained; the
same with two journals. Each had at least two starts. They are small, so that a trial on a copy takes a second.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from broker_process import Broker, wait_until
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record as BatchRecord
from cairnmq.codec.records import build_batch, decode_batch
from crash.ledger import Place
from damage.wire_client import WireClient
from interop.clients.librdkafka import LibrdkafkaClient

SECONDS = 30.0
NOTED_SECONDS = 1.5  # before a kill: whatever notes now and then how far the journals were synced has had its turn
BATCH_RECORDS, NEW_RECORDS = 8, 3
ABORTED_SHARE = 0.45
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 25  # of compacted topics
GROUPS = ("billing", "mail", "audit")
OPEN_TOPIC, LATE_TOPIC, DOOMED_TOPIC = "left-open", "late", "doomed"
QUICK = {
    "cairn.checkpoint.interval.ms": "300",
    "cairn.reserve.bytes": "65536",
    "cairn.journal.segment.bytes": str(1 << 17),
    "log.retention.check.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}


class Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Stock:
    """One directory (`data`, and `journals` if they have one of their own) and what clients know of it."""

    name: str
    root: Path
    settings: dict[str, str]
    records: dict[Place, dict[int, Record]] = field(default_factory=dict)
    """Acknowledged, not aborted, not deleted; by offset."""
    never: dict[Place, set[int]] = field(default_factory=dict)
    """Offsets of records that were aborted, or never decided."""
    starts: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    committed: dict[tuple[str, Place], int] = field(default_factory=dict)
    topic_settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    producer_ids: set[int] = field(default_factory=set)
    transactional: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id -> the producer id and the highest epoch that it had."""
    queue_ids: set[int] = field(default_factory=set)
    epoch: int = 0
    is_checkpointed: bool = False
    """No journal holds anything that is not elsewhere too."""
    earlier: Stock | None = None
    """A copy that was taken when the first run had stopped."""

    @property
    def topics(self) -> set[str]:
        return {place.topic for place in self.records}

    def copied(self, root: Path) -> Stock:
        """As of now; no broker runs."""
        root.mkdir()
        for name in ("data", "journals"):
            if (self.root / name).exists():
                shutil.copytree(self.root / name, root / name)
        return replace(deepcopy(self), root=root)

    def pending(self, place: Place) -> dict[int, Record]:
        """Records that must be there: of a compacted topic the latest of each key."""
        records = self.records[place]
        if place.topic not in self.compacted:
            return records
        latest = {records[offset].key: offset for offset in sorted(records)}
        return {offset: records[offset] for offset in sorted(latest.values())}

    def broker(self, directory: Path, copy: Path, flags: Iterable[str] = ()) -> Broker:
        """For a copy of it."""
        broker = Broker(directory, settings=self.settings, flags=flags)
        broker.data = copy / "data"
        if (self.root / "journals").exists():
            broker.journal_dir = copy / "journals"
        return broker


def topics() -> dict[str, tuple[int, dict[str, str]]]:
    """Partitions and settings by name. Segments are so small that each partition has several."""
    own = {"cairn.model": "dedicated", "internal.segment.bytes": "12000", "index.interval.bytes": "2000"}
    packed = {"cairn.model": "shared"}
    table = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "60000"}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    return {
        "plain": (2, own),
        "idempotent": (2, packed),
        "codecs": (len(CODECS), own),
        "codecs-packed": (len(CODECS), packed),
        "moves": (2, own),
        "moves-packed": (2, packed),
        "table": (1, own | table),
        "table-packed": (1, packed | table),
        "stamped": (1, own | stamped),
        "stamped-packed": (1, packed | stamped),
        "trimmed": (1, own),
        "trimmed-packed": (1, packed),
        OPEN_TOPIC: (1, own),
    }


def get(broker: Broker, path: str) -> dict[str, Any]:
    """JSON of the status port; also what comes with a 503."""
    try:
        with urllib.request.urlopen(f"{broker.http}{path}", timeout=SECONDS) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        assert error.code == 503, f"{path}: {error}"
        return dict(json.load(error))


class Builder:
    """Fills a stock through confluent-kafka."""

    def __init__(self, stock: Stock, seed: int) -> None:
        self.stock = stock
        self.rng = Random(seed)
        self.broker = stock.broker(stock.root / "process", stock.root)
        self.time = int(time.time() * 1000) - 3_600_000
        self.problems: list[KafkaError] = []

    # ------------------------------------------------------------------------------------------------- starts

    def start(self) -> None:
        self.broker.start()
        self.client = LibrdkafkaClient(self.broker.bootstrap)
        self.stock.epoch = get(self.broker, "/api/v1/status")["broker"]["epoch"]
        with WireClient(self.broker.bootstrap) as wire:
            for _ in range(3):  # ids that nobody writes with are given too
                error, producer_id, epoch = wire.init_producer()
                assert not error
                self.stock.producer_ids.add(producer_id)
        self.new_producer = producer_id - 2, epoch

    def wait_checkpointed(self) -> None:
        """Everything is split, and a checkpoint says so."""

        def is_done() -> bool:
            journals = get(self.broker, "/api/v1/status")["journals"]
            return all(each["checkpoint"] == each["end"] for each in journals)

        wait_until(is_done, SECONDS, "a checkpoint of everything")

    def pause_splitter(self) -> None:
        splitter = self.broker.splitter()
        assert splitter is not None
        splitter.send_signal(signal.SIGSTOP)

    # ------------------------------------------------------------------------------------------------- topics

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        configs = {**configs, "retention.ms": "-1"}
        self.client.create_topic(name, partitions, configs)
        if "compact" in configs.get("cleanup.policy", ""):
            self.stock.compacted.add(name)
        for partition in range(partitions):
            place = Place(name, partition)
            self.stock.records[place] = {}
            self.stock.never[place] = set()
            self.stock.starts[place] = 0
        self.note_queues(name)

    def create_late(self) -> None:
        """The last changes of topics and settings."""
        self.create(LATE_TOPIC, 1, {"cairn.model": "shared"})
        self.client.alter_configs("idempotent", {"max.message.bytes": "600000"})

    def note_queues(self, topic: str) -> None:
        rows = get(self.broker, f"/api/v1/topics/{topic}")["partitions"]
        self.stock.queue_ids.update(row["queue_id"] for row in rows)

    def trim(self, topic: str, offset: int) -> None:
        place = Place(topic, 0)
        self.stock.starts[place] = self.client.delete_records(topic, 0, offset)
        for gone in [each for each in self.stock.records[place] if each < offset]:
            del self.stock.records[place][gone]

    # ------------------------------------------------------------------------------------------------ records

    def record(self, place: Place) -> Record:
        rng = self.rng
        self.time += rng.randrange(1, 50)
        key = b"key %d" % rng.randrange(KEYS)
        value = f"{place.topic} {place.partition} {self.time} ".encode() + rng.randbytes(rng.randrange(20, 250))
        if place.topic in self.stock.compacted and rng.random() < 0.05:
            return Record(self.time, key, None)
        headers = (("trace", rng.randbytes(8)),) if rng.random() < 0.2 else ()
        return Record(self.time, key if rng.random() < 0.8 or place.topic in self.stock.compacted else None,
                      value + b"." * rng.randrange(80), headers)  # fmt: skip

    @contextmanager
    def producer(self, **options: object) -> Iterator[Producer]:
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "batch.num.messages": BATCH_RECORDS,
                "linger.ms": 2,
                "message.timeout.ms": int(SECONDS * 1000),
                "acks": "all",
                "log_level": 2,
                **options,
            }
        )
        yield producer
        assert producer.flush(SECONDS) == 0 and not self.problems, self.problems

    def send(self, producer: Producer, place: Place, taken: dict[Place, dict[int, Record]]) -> None:
        """Goes into `taken` when it is acknowledged."""
        record = self.record(place)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.problems.append(error)
            else:
                taken.setdefault(place, {})[message.offset()] = record

        producer.produce(
            place.topic,
            record.value,
            record.key,
            partition=place.partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=delivered,
        )

    def write(self, rounds: int) -> None:
        """Some records into every partition of topics without transactions."""
        places = [place for place in self.stock.records if not place.topic.startswith(("moves", OPEN_TOPIC))]
        by_codec = {
            codec: [p for p in places if p.topic.startswith("codecs") and p.partition == number]
            for number, codec in enumerate(CODECS)
        }
        for codec, them in by_codec.items():
            with self.producer(**{"compression.type": codec}) as producer:
                self.write_with(producer, them, rounds)
        rest = [place for place in places if not place.topic.startswith("codecs")]
        for idempotent in (False, True):
            with self.producer(**{"enable.idempotence": idempotent}) as producer:
                self.write_with(producer, [p for p in rest if (p.topic != "plain") is idempotent], rounds)

    def write_with(self, producer: Producer, places: list[Place], rounds: int) -> None:
        for _ in range(rounds):
            for place in places:
                for _ in range(BATCH_RECORDS):
                    self.send(producer, place, self.stock.records)
            assert producer.flush(SECONDS) == 0

    def write_as_new(self) -> None:
        """Two small batches of the first producer of this run into each partition: to who gets its id again, the queues
        would say that they have his records already."""
        producer_id, epoch = self.new_producer
        places = [place for place in self.stock.records if not place.topic.startswith(("moves", OPEN_TOPIC))]
        with WireClient(self.broker.bootstrap) as wire:
            wire.topics()
            for number in range(2):
                records = {place: [self.record(place) for _ in range(NEW_RECORDS)] for place in places}
                batches = {
                    place: build_batch(
                        [BatchRecord(0, each.timestamp, each.key, each.value, each.headers) for each in them],
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=number * NEW_RECORDS,
                    )
                    for place, them in records.items()
                }
                for place, (error, base) in wire.produce(batches).items():
                    assert not error, f"{place}: error {error}"
                    self.stock.records[place].update(zip(count(base), records[place], strict=False))

    def transact(self, times: int) -> None:
        """Transactions of two ids over all partitions of two topics."""
        places = [place for place in self.stock.records if place.topic.startswith("moves")]
        for name in ("mover-a", "mover-b"):
            with self.producer(**{"transactional.id": name}) as producer:
                producer.init_transactions(SECONDS)
                for _ in range(times):
                    taken: dict[Place, dict[int, Record]] = {}
                    producer.begin_transaction()
                    for place in self.rng.sample(places, 2):
                        for _ in range(self.rng.randrange(1, 5)):
                            self.send(producer, place, taken)
                    assert producer.flush(SECONDS) == 0
                    if self.rng.random() < ABORTED_SHARE:
                        producer.abort_transaction(SECONDS)
                        for place, records in taken.items():
                            self.stock.never[place].update(records)
                    else:
                        producer.commit_transaction(SECONDS)
                        for place, records in taken.items():
                            self.stock.records[place].update(records)

    def leave_open(self) -> Producer:
        """A transaction that is not decided; it lives as long as its producer does."""
        taken: dict[Place, dict[int, Record]] = {}
        place = Place(OPEN_TOPIC, 0)
        with self.producer(**{"transactional.id": "never-ends", "transaction.timeout.ms": 600_000}) as producer:
            producer.init_transactions(SECONDS)
            producer.begin_transaction()
            for _ in range(3):
                self.send(producer, place, taken)
        self.stock.never[place].update(taken[place])
        return producer

    def commit(self, groups: Iterable[str]) -> None:
        """Each group commits somewhere on some partitions, never behind where it was."""
        for group in groups:
            settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "log_level": 2}
            with closing(Consumer(settings)) as consumer:
                places = [place for place in self.stock.records if self.stock.records[place]]
                offsets = []
                for place in self.rng.sample(places, 6):
                    before = self.stock.committed.get((group, place), 0)
                    offset = self.rng.randint(before, max(self.stock.records[place]) + 1)
                    offsets.append(TopicPartition(place.topic, place.partition, offset))
                for done in consumer.commit(offsets=offsets, asynchronous=False):
                    assert done.error is None, done
                    self.stock.committed[group, Place(done.topic, done.partition)] = done.offset

    # ---------------------------------------------------------------------------------------------- the truth

    def look(self) -> None:
        """While all is well: what only the broker knows (append times, ids), and that the rest is as it should be."""
        stock = self.stock
        with WireClient(self.broker.bootstrap) as wire:
            names = wire.topics()
            assert names.keys() == stock.topics
            stock.topic_settings = wire.settings(names)
            for place, fetched in wire.fetch({place: stock.starts[place] for place in stock.records}).items():
                assert not fetched.error
                stock.ends[place] = fetched.high_watermark
            for place in stock.records:
                self.look_at(wire, place)
        for topic in names:
            self.note_queues(topic)

    def look_at(self, wire: WireClient, place: Place) -> None:
        stock, offset = self.stock, self.stock.starts[place]
        append_time = place.topic.startswith("stamped")
        while offset < stock.ends[place]:
            fetched = wire.fetch({place: offset}, committed=False)[place]
            assert not fetched.error and fetched.batches, f"{place} at {offset}"
            for batch in fetched.batches:
                header = read_header(batch)
                offset = header.last_offset + 1
                if header.producer_id >= 0:
                    stock.producer_ids.add(header.producer_id)
                for record in decode_batch(batch):
                    if append_time and record.offset in stock.records[place]:
                        sent = stock.records[place][record.offset]
                        stock.records[place][record.offset] = sent._replace(timestamp=record.timestamp)

    def note_transactional(self) -> None:
        """The latest producer id and epoch of each transactional id, as the producers' batches say."""
        stock = self.stock
        with WireClient(self.broker.bootstrap) as wire:
            wire.topics()
            for name in ("mover-a", "mover-b"):
                error, producer_id, epoch = wire.init_producer(name)  # as a next producer with this id
                assert not error
                stock.transactional[name] = producer_id, epoch
                stock.producer_ids.add(producer_id)


def build(root: Path, name: str, seed: int = 1) -> Stock:
    """`clean`, `killed`, `retained` or `two`."""
    settings = dict(QUICK)
    if name == "retained":
        settings["cairn.journal.retention.bytes"] = str(1 << 30)
    if name == "two":
        settings["cairn.journals"] = "2"
    root.mkdir(parents=True)
    if name in ("retained", "two"):
        (root / "journals").mkdir()
    stock = Stock(name, root, settings)
    made = Builder(stock, seed)
    try:
        fill(made)
    finally:
        made.broker.close()
    shutil.rmtree(root / "process")
    return stock


def fill(made: Builder) -> None:
    stock, broker = made.stock, made.broker
    is_clean = stock.name == "clean"
    made.start()
    for topic, (partitions, configs) in topics().items():
        made.create(topic, partitions, configs)
    made.client.create_topic(DOOMED_TOPIC, 3, {})
    made.note_queues(DOOMED_TOPIC)
    made.write(9)
    made.transact(14)
    made.commit(GROUPS)
    made.trim("trimmed", 11)
    made.client.delete_topic(DOOMED_TOPIC)
    made.client.alter_configs("plain", {"max.message.bytes": "500000"})
    made.wait_checkpointed()
    if stock.name in ("clean", "two"):
        made.note_transactional()
        made.look()
        assert broker.stop() == 0  # the metadata's write-ahead log is folded in
        stock.earlier = stock.copied(stock.root.with_name(f"{stock.name}-earlier"))
    else:
        broker.kill_tree()
    made.start()
    made.write(6)
    made.transact(9)
    made.commit(GROUPS[:2])
    made.trim("trimmed-packed", 9)
    made.wait_checkpointed()
    if stock.name in ("retained", "two"):
        # In the last run all that the metadata get to know are its epoch and the producer ids that it gives out.
        made.create_late()
        made.write_as_new()
        broker.kill_tree()
        made.start()
    if not is_clean:
        made.pause_splitter()
    if LATE_TOPIC not in stock.topics:
        made.create_late()
    made.write(3)
    made.write_as_new()
    made.transact(4)
    made.note_transactional()
    made.commit(GROUPS[1:])
    made.trim("trimmed", 17)
    left_open = None if is_clean else made.leave_open()
    made.look()
    if is_clean:
        assert broker.stop() == 0
        broker.start()  # a run that writes nothing: its epoch was given all the same
        stock.epoch = get(broker, "/api/v1/status")["broker"]["epoch"]
        assert broker.stop() == 0
        stock.is_checkpointed = True
    else:
        time.sleep(NOTED_SECONDS)
        broker.kill_tree()
    del left_open


NAMES = ("clean", "killed", "retained", "two")
