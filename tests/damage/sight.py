"""What clients see of a running broker on a copy of a stock: every record, every error, and what they can still do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from broker_process import Broker
from cairnmq.client.records import Fetched
from cairnmq.codec.batch import read_header
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import Record as BatchRecord
from cairnmq.codec.records import build_batch, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import CreateTopicsRequest, CreateTopicsResponse
from crash.ledger import Place
from damage.stock import GROUPS, NEW_RECORDS, Record, Stock, get
from damage.wire_client import WireClient

REPAIR_SECONDS = 1.5  # from the first error on: what a journal still holds is made good by then
AGAIN_SECONDS = 0.05
LATER_TRIES = 3  # at places that show when the time is over
LIST_SECONDS = 0.3
NEW_PRODUCERS = 3
NEW_TOPIC = "fresh"
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Gap(NamedTuple):
    """Offsets that were not served, and what a reader at the first of them was told (0: nothing)."""

    first: int
    end: int
    code: int


@dataclass
class PartitionSeen:
    records: dict[int, Record] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    undecodable: list[str] = field(default_factory=list)
    healed: bool = False  # an error went away by itself

    def gap_at(self, offset: int) -> Gap | None:
        return next((gap for gap in self.gaps if gap.first <= offset < gap.end), None)


class Wrote(NamedTuple):
    """What a new producer was told about its batches in one partition, and what is there."""

    code: int
    offsets: tuple[int, ...]  # of the first record of each batch, as acknowledged
    stored: bool  # what was acknowledged is what is read back


@dataclass
class Seen:
    topics: dict[str, int] = field(default_factory=dict)
    partitions: dict[Place, PartitionSeen] = field(default_factory=dict)
    committed: dict[tuple[str, Place], tuple[int, int]] = field(default_factory=dict)
    """Error code and offset."""
    topic_settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    producer_ids: list[tuple[int, int]] = field(default_factory=list)
    """Error code and id of each new producer."""
    transactional: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Error code, producer id, epoch."""
    queue_ids: set[int] = field(default_factory=set)
    writes: dict[Place, Wrote] = field(default_factory=dict)
    epoch: int = 0
    status: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    memory_bytes: int = 0
    log: str = ""
    exit_code: int = 0

    @property
    def records_read(self) -> int:
        return sum(len(each.records) for each in self.partitions.values())


def look(broker: Broker, stock: Stock, *, write: bool = True) -> Seen:
    """All but the log and the exit code. `write`: also with new producers, a new topic and a write everywhere."""
    seen = Seen(epoch=get(broker, "/api/v1/status")["broker"]["epoch"])
    with WireClient(broker.bootstrap) as wire:
        seen.topics = wire.topics()
        Reading(broker, wire, stock, seen).run()
        for group in GROUPS:
            places = [place for name, place in stock.committed if name == group and place.topic in seen.topics]
            for place, answer in wire.committed(group, places).items():
                seen.committed[group, place] = answer
        seen.topic_settings = wire.settings(seen.topics)
        if write:
            act(broker, wire, stock, seen)
    seen.status = get(broker, "/api/v1/status")
    seen.reasons = get(broker, "/health/ready")["reasons"]
    seen.memory_bytes = peak_memory(broker)
    return seen


class Reading:
    """Every partition from its start on, as a reader of committed records does who does not give up at an error."""

    def __init__(self, broker: Broker, wire: WireClient, stock: Stock, seen: Seen) -> None:
        self.broker = broker
        self.wire = wire
        self.stock = stock
        self.seen = seen
        self.positions: dict[Place, int] = {}
        self.failing: dict[Place, tuple[int, int]] = {}  # the offset, and how often it was tried there
        self.give_up_at: float | None = None
        self.listed: list[dict[str, Any]] = []
        self.listed_at = 0.0

    def run(self) -> None:
        for place, start in self.stock.starts.items():
            self.seen.partitions[place] = found = PartitionSeen()
            if place.partition < self.seen.topics.get(place.topic, 0):
                self.positions[place] = start
            else:
                found.gaps.append(Gap(start, self.stock.ends[place], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        asked = dict(self.positions)
        while asked:
            for place, fetched in self.wire.fetch(asked).items():
                self.take(place, fetched)
            asked = {place: self.positions[place] for place in asked if place in self.positions}
            if asked and asked.keys() <= self.failing.keys():
                self.wait()
        for place in self.stock.starts:
            if place.topic in self.seen.topics:
                self.look_behind_the_end(place)

    def take(self, place: Place, fetched: Fetched) -> None:
        found, position = self.seen.partitions[place], self.positions[place]
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            end = fetched.log_start if fetched.log_start > position else max(self.stock.ends[place], position)
            self.skip(place, end, fetched.error)
        elif fetched.error:
            offset, tries = self.failing.get(place, (position, 0))
            self.failing[place] = (position, tries + 1 if offset == position else 1)
            if self.give_up_at is None:
                self.give_up_at = time.monotonic() + REPAIR_SECONDS
            elif time.monotonic() > self.give_up_at:
                goes_on = bool(found.gaps) and found.gaps[-1].end == position
                if goes_on or self.failing[place][1] >= LATER_TRIES:
                    self.skip(place, self.behind(place, position), fetched.error)
        else:
            if self.failing.pop(place, None) is not None:
                found.healed = True
            self.keep(place, fetched)
            if not fetched.batches and position >= min(fetched.last_stable, fetched.high_watermark):
                del self.positions[place]

    def keep(self, place: Place, fetched: Fetched) -> None:
        found, first = self.seen.partitions[place], self.positions[place]
        for batch, counts in fetched.judged():
            header = read_header(batch)
            self.positions[place] = max(self.positions[place], header.last_offset + 1)
            try:
                for record in decode_batch(batch) if counts else ():
                    if record.offset >= first:  # a batch is given whole, also if it begins before
                        found.records[record.offset] = Record(
                            record.timestamp, record.key, record.value, tuple(record.headers)
                        )
            except Undecodable as error:
                found.undecodable.append(str(error))

    def behind(self, place: Place, position: int) -> int:
        """Where the list of damages says that a reader can go on; else the next offset."""
        if time.monotonic() > self.listed_at + LIST_SECONDS:
            self.listed, self.listed_at = get(self.broker, "/api/v1/storage")["damages"], time.monotonic()
        for row in self.listed:
            if (
                row["queue"] == f"{place.topic}-{place.partition}"
                and row["first_offset"] <= position < row["end_offset"]
            ):
                return int(row["end_offset"])
        return position + 1

    def skip(self, place: Place, end: int, code: int) -> None:
        gaps, position = self.seen.partitions[place].gaps, self.positions[place]
        first = gaps.pop().first if gaps and gaps[-1].end == position and gaps[-1].code == code else position
        gaps.append(Gap(first, end, code))
        self.failing.pop(place, None)
        if position >= self.stock.ends[place]:
            del self.positions[place]  # what was written later begins there, unless all behind it fails too
        else:
            self.positions[place] = end

    def wait(self) -> None:
        time.sleep(AGAIN_SECONDS)

    def look_behind_the_end(self, place: Place) -> None:
        """A reader who knows of records that were not served asks for the first of them."""
        found = self.seen.partitions[place]
        missing = [offset for offset in self.stock.pending(place) if offset not in found.records]
        missing = [offset for offset in missing if found.gap_at(offset) is None]
        if missing:
            fetched = self.wire.fetch({place: missing[0]})[place]
            found.gaps.append(Gap(missing[0], max(missing) + 1, fetched.error))


def act(broker: Broker, wire: WireClient, stock: Stock, seen: Seen) -> None:
    """New ids of every kind, and two batches of a new producer in every partition, which are read back."""
    new = [wire.init_producer() for _ in range(NEW_PRODUCERS)]
    seen.producer_ids = [(error, producer_id) for error, producer_id, _ in new]
    for name in stock.transactional:
        for _ in range(20):
            seen.transactional[name] = wire.init_producer(name)
            if seen.transactional[name][0] not in BUSY:
                break
            time.sleep(AGAIN_SECONDS)
    row = CreateTopicsRequest.CreatableTopic(name=NEW_TOPIC, num_partitions=2, replication_factor=1)
    answer = wire.ask(CreateTopicsRequest(topics=[row], timeout_ms=5000), CreateTopicsResponse)
    topics = wire.topics()
    if not answer.topics[0].error_code:
        rows = get(broker, f"/api/v1/topics/{NEW_TOPIC}")["partitions"]
        seen.queue_ids = {each["queue_id"] for each in rows}
    places = [Place(topic, partition) for topic, count in topics.items() for partition in range(count)]
    error, producer_id, epoch = new[0]
    if error:
        return  # told; without an id nothing can be written
    answers: dict[Place, list[tuple[int, int]]] = {place: [] for place in places}
    for number in range(2):
        batches = {place: batch_of(place, producer_id, epoch, number) for place in places}
        for place, told in wire.produce(batches).items():
            answers[place].append(told)
    for place, told in answers.items():
        codes = [code for code, _ in told if code]
        offsets = tuple(offset for code, offset in told if not code)
        stored = all(is_there(wire, place, offset, number) for number, (code, offset) in enumerate(told) if not code)
        seen.writes[place] = Wrote(codes[0] if codes else 0, offsets, stored)


def written(place: Place, number: int) -> list[BatchRecord]:
    now = int(time.time() * 1000)
    text = f"new {place.topic} {place.partition} {number}"
    return [BatchRecord(0, now, b"new key", f"{text} {each}".encode()) for each in range(NEW_RECORDS)]


def batch_of(place: Place, producer_id: int, epoch: int, number: int) -> bytes:
    return build_batch(
        written(place, number), producer_id=producer_id, producer_epoch=epoch, base_sequence=number * NEW_RECORDS
    )


def is_there(wire: WireClient, place: Place, offset: int, number: int) -> bool:
    """What a new producer wrote is read back at the offset that it was told."""
    fetched = wire.fetch({place: offset}, committed=False)[place]
    found = [record.value for batch in fetched.batches[:1] for record in decode_batch(batch) if record.offset >= offset]
    return not fetched.error and found == [record.value for record in written(place, number)]


def peak_memory(broker: Broker) -> int:
    """The largest that each process ever was, added up; what they share is counted twice."""
    return sum(_peak(process.pid) for process in broker.tree())


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
