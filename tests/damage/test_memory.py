"""One damaged file of each kind, a thousand readers of what it holds, and a producer that must not notice: the broker's
processes stay within 256 MB together."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_process import Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.errors import ErrorCode
from cairnmq.storage.files.format import ENTRY_SIZE
from cairnmq.wire.apis import PRODUCE
from cairnmq.wire.codec import encode
from cairnmq.wire.framing import request_frame
from cairnmq.wire.messages import ProduceRequest
from fuzz.hostile import sealed
from fuzz.memory import MemoryWatch
from fuzz.neighbour import Neighbour

TESTS = str(Path(__file__).parent.parent)
LIMIT_MB = 256
BATCH_BYTES = 50_000
SEGMENT_BATCHES = 6000  # 300 MB in one segment
PACK_BATCHES = 400
JOURNAL_BATCHES = 1500  # 75 MB
BAD = 10  # the batch whose length is wrong; each batch has one record, so that is its offset too
LENGTH_AT, LENGTH_BIT = 8, 4  # in a batch's header: bit 28 of its length, so it says that it has 268 MB
READERS = 1000
REFUSED = str(ErrorCode.KAFKA_STORAGE_ERROR.value)
ANSWERS = {"0", REFUSED, "looked up: 0", f"looked up: {REFUSED}"}
SECONDS = 3.0
AT_ONCE = 20


def produce(bootstrap: str, topic: str, count: int) -> int:
    """So many large batches as fast as they are taken; returns the size of each."""
    host, _, port = bootstrap.rpartition(":")
    batch = sealed(0, b"\x0c\0\0\0\1\1\0" + os.urandom(BATCH_BYTES))
    part = ProduceRequest.PartitionProduceData(records=batch)
    data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    body = encode(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
    frame = b"".join(request_frame(PRODUCE, 9, 1, "filler", body))
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        answers = wire.makefile("rb")
        for number in range(count + AT_ONCE):
            if number < count:
                wire.sendall(frame)
            if number >= AT_ONCE:
                (size,) = struct.unpack(">i", answers.read(4))
                answers.read(size)
    return len(batch)


def abort_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "aborts", "linger.ms": 0})
    producer.init_transactions(30)
    for _ in range(20):
        producer.begin_transaction()
        producer.produce("aborted", b"x" * 1000, partition=0)
        producer.flush(30)
        producer.abort_transaction(30)


def flip(path: Path, position: int, bit: int) -> bytes:
    """Returns the byte that was there."""
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([old[0] ^ (1 << bit)]))
    return old


def put_back(path: Path, position: int, old: bytes) -> None:
    if path.exists():  # a repair may have put another one in its place, as long and as good
        with path.open("r+b") as file:
            file.seek(position)
            file.write(old)


def read_by_a_thousand(broker: Broker, topic: str, offset: int, kind: str) -> dict[str, int]:
    """What they were answered; the producer beside them missed nothing, and memory was bounded all the time."""
    memory = MemoryWatch(broker)
    neighbour = Neighbour(broker.bootstrap)
    line = [sys.executable, "-m", "damage.readers", "--bootstrap", broker.bootstrap, "--topic", topic]
    line += ["--offset", str(offset), "--readers", str(READERS), "--seconds", str(SECONDS)]
    done = subprocess.run(line, cwd=TESTS, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    measured = neighbour.finish()
    peak = memory.stop()
    with Client.connect(broker.bootstrap) as client:
        client.delete_topics([neighbour.place.topic])  # the next one begins with a new one
    answered: dict[str, int] = json.loads(done.stdout)
    print(f"\n{kind}: peak {peak} MB {memory.of_each}, {answered}, beside them {measured}")
    assert peak <= LIMIT_MB, f"{kind}: {peak} MB {memory.of_each}"
    assert measured["records"] > 20
    return answered


def the_file(broker: Broker, pattern: str) -> Path:
    return max(broker.data.glob(pattern), key=lambda path: path.stat().st_size)


def test_one_damaged_file_and_a_thousand_readers(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings={"cairn.checkpoint.interval.ms": "1000"}).start()
    with Client.connect(broker.bootstrap) as client:
        for name, model in (("big", "dedicated"), ("packed", "shared"), ("aborted", "dedicated")):
            # Their batches are dated 1970, and retention may look at any time after a topic is deleted.
            client.create_topics([NewTopic(name, 1, configs={"cairn.model": model, "retention.ms": "-1"})])
    size = produce(broker.bootstrap, "big", SEGMENT_BATCHES)
    produce(broker.bootstrap, "packed", PACK_BATCHES)
    abort_transactions(broker.bootstrap)
    assert broker.stop() == 0

    segment, pack = the_file(broker, "queues/big-0/*.log"), the_file(broker, "packs/*.pack")
    index, stamps = the_file(broker, "queues/big-0/*.index"), the_file(broker, "queues/big-0/*.timeindex")
    rows, identity = the_file(broker, "queues/aborted-0/*.txnindex"), broker.data / "queues/big-0/queue.json"
    middle = SEGMENT_BATCHES // 2
    in_length = BAD * size + LENGTH_AT, LENGTH_BIT
    for kind, path, (at, bit), topic, offset in (
        ("segment", segment, in_length, "big", BAD),
        ("index", index, (index.stat().st_size // 2, 6), "big", middle),
        ("timeindex", stamps, (3, 6), "big", middle),
        ("txnindex", rows, (40, 6), "aborted", 0),
        ("queue.json", identity, (20, 1), "big", middle),
        ("pack", pack, (pack.stat().st_size // 2, 6), "packed", PACK_BATCHES // 2),
    ):
        was = flip(path, at, bit)
        broker.start()
        answered = read_by_a_thousand(broker, topic, offset, kind)
        assert broker.stop() == 0
        assert sum(answered.values()) >= READERS and answered.keys() <= ANSWERS, f"{kind}: {answered}"
        if kind == "segment":
            assert answered[REFUSED] > READERS / 2 and "0" not in answered
        put_back(path, at, was)


@pytest.mark.parametrize("frame", [True, False], ids=["frame", "batch"])
def test_a_damaged_length_in_a_journal(make_broker: Callable[..., Broker], frame: bool) -> None:
    """Of an entry's frame, or of the batch in it; most of the journal is not split."""
    broker = make_broker(settings={"cairn.split.enable": "false"}).start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic("tail", 1)])
    size = produce(broker.bootstrap, "tail", JOURNAL_BATCHES)
    broker.kill_tree()
    journal = the_file(broker, "journal/0/*.jnl")
    begins = journal.read_bytes().index(struct.pack(">qi", BAD, size - 12)) - ENTRY_SIZE
    flip(journal, begins + (4 if frame else ENTRY_SIZE + LENGTH_AT), 2)  # 67 MB more
    memory = MemoryWatch(broker)
    broker.start()
    line = [sys.executable, "-m", "damage.readers", "--bootstrap", broker.bootstrap, "--topic", "tail"]
    line += ["--offset", "0", "--readers", str(READERS), "--seconds", str(SECONDS)]
    done = subprocess.run(line, cwd=TESTS, capture_output=True, text=True, timeout=180)
    peak = memory.stop()
    print(f"\njournal: peak {peak} MB {memory.of_each}, {done.stdout.strip()}")
    assert done.returncode == 0 and json.loads(done.stdout)["0"] > READERS / 2, done.stderr
    assert peak <= LIMIT_MB, f"{peak} MB {memory.of_each}"
    assert broker.stop() == 0
