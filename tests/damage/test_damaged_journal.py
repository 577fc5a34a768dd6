"""Real brokers on damaged journals, with confluent-kafka: damage is logged and shown, no client rewinds or gets older
offsets, and `--accept-loss` goes on behind it with a list of what is lost."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from broker_process import CAIRN, Broker, fixed_port
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import BATCH, ENTRY_SIZE, Entry
from cairnmq.storage.journal.journal import JournalReader

SECONDS = 30.0
PATIENCE_SECONDS = 3.0  # for what must not come
FIRST, SECOND, COMMITTED = 20, 40, 55  # records before and behind the checkpoint, in all; committed behind the damage
HURT = 43  # a record of partition 0


def value(number: int) -> bytes:
    return b"%d " % number + b"x" * 200


def send(broker: Broker, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
    failed: list[object] = []
    for number in numbers:
        for partition in (0, 1):
            producer.produce("t", value(number), partition=partition, on_delivery=lambda e, _: failed.append(e))
        assert producer.flush(SECONDS) == 0
    assert not any(failed)


def consumer(broker: Broker, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def read(broker: Broker, partition: int, start: int, wanted: int, seconds: float = SECONDS) -> dict[int, bytes]:
    reader = consumer(broker)
    reader.assign([TopicPartition("t", partition, start)])
    got: dict[int, bytes] = {}
    deadline = time.monotonic() + seconds
    try:
        while len(got) < wanted and time.monotonic() < deadline:
            for message in reader.consume(1000, 0.2):
                if message.error() is None:
                    got[message.offset()] = message.value()
    finally:
        reader.close()
    return got


def metrics(broker: Broker) -> str:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def reasons(broker: Broker) -> list[str]:
    try:
        urllib.request.urlopen(f"{broker.http}/health/ready", timeout=30)
    except urllib.error.HTTPError as refused:
        return list(json.load(refused)["reasons"])
    return []


def run(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CAIRN, *line], capture_output=True, text=True, timeout=60, check=False)


def journal_file(broker: Broker) -> Path:
    return sorted((broker.data / "journal" / "0").glob("*.jnl"))[-1]


def entries(broker: Broker) -> list[Entry]:
    reader = JournalReader(RealDisk(broker.data / "journal"), 0)
    return list(reader.entries(reader.bases[0], reader.end()))


@pytest.fixture
def broker(make_broker: Callable[..., Broker]) -> Broker:
    """Killed, with records and an offset behind the checkpoint."""
    broker = make_broker(port=fixed_port()).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(SECONDS)
    send(broker, range(FIRST))
    commit(broker, 10)
    assert broker.stop() == 0
    broker.start(cairn_split_enable="false")
    send(broker, range(FIRST, FIRST + SECOND))
    commit(broker, COMMITTED)
    broker.kill_tree()
    return broker


def commit(broker: Broker, offset: int) -> None:
    reader = consumer(broker)
    reader.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    reader.close()


def flip(broker: Broker, position: int) -> None:
    path = journal_file(broker)
    base = int(path.stem)
    data = bytearray(path.read_bytes())
    data[position - base] ^= 4
    path.write_bytes(data)


def hurt(broker: Broker) -> int:
    """A bit in the payload of a record of partition 0; its journal position."""
    batches = [entry for entry in entries(broker) if entry.kind == BATCH]
    first = min(entry.queue_id for entry in batches)
    position = next(e.position for e in batches if e.queue_id == first and e.base_offset == HURT)
    flip(broker, position + ENTRY_SIZE + 100)
    return position


def test_damage_behind_the_checkpoint(broker: Broker) -> None:
    position = hurt(broker)
    verified = run("verify", str(broker.data))
    assert verified.returncode == 1 and f"damaged at journal position {position}" in verified.stdout
    seen = len(broker.log())
    broker.start()
    said = [line for line in broker.log()[seen:].splitlines() if " ERROR " in line]
    assert len(said) == 1 and f"journal 0 is damaged at position {position} (file 0/" in said[0], said
    assert "--accept-loss" in said[0] and "error 56" in said[0]
    (reason,) = reasons(broker)
    assert f"journal 0 is damaged at position {position}" in reason
    assert 'cairn_journal_damaged{journal="0"} 1' in metrics(broker)
    assert broker.http is not None
    for line in (["--http", broker.http], ["-b", broker.bootstrap]):
        health = run("cluster", "health", *line)
        assert health.returncode == 1 and health.stdout.startswith("unhealthy"), health

    # what lies before is served; behind it nobody gets anything, and nobody starts over
    assert read(broker, 0, 0, HURT) == {number: value(number) for number in range(HURT)}
    for start in (HURT, HURT + 1, FIRST + SECOND):
        assert read(broker, 0, start, 1, PATIENCE_SECONDS) == {}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    latest = {TopicPartition("t", 0): OffsetSpec.latest()}
    refused = admin.list_offsets(latest, request_timeout=PATIENCE_SECONDS)
    with pytest.raises(KafkaException):
        refused[TopicPartition("t", 0)].result(SECONDS)
    member = consumer(broker)
    with pytest.raises(KafkaException):
        member.committed([TopicPartition("t", 0)], timeout=PATIENCE_SECONDS)
    member.subscribe(["t"])
    assert member.consume(1, PATIENCE_SECONDS) == []
    member.close()
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1500})
    producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: failed.append(error))
    producer.flush(SECONDS)
    assert failed and failed[0] is not None
    assert broker.stop() == 0

    accepted = Broker(broker.directory, port=broker.port, flags=["--accept-loss"])
    seen = len(broker.log())
    accepted.start()
    said = [line for line in broker.log()[seen:].splitlines() if "--accept-loss: " in line]
    lost = [line.partition("--accept-loss: ")[2] for line in said]
    assert lost[1:] == [f"lost: t-0: offsets {HURT} to {HURT}"], lost
    assert "journal 0: " in lost[0] and "are damaged" in lost[0]
    whole(accepted)
    assert reasons(accepted) == []
    send(accepted, range(FIRST + SECOND, FIRST + SECOND + 5))
    assert accepted.stop() == 0
    seen = len(broker.log())
    broker.start()
    assert " ERROR " not in broker.log()[seen:] and " WARNING " not in broker.log()[seen:], broker.log_tail()
    whole(broker, 5)
    assert any((broker.data / "journal" / "lost").rglob("*.jnl")), "nothing is deleted"
    assert broker.stop() == 0
    verified = run("verify", str(broker.data))
    assert verified.returncode == 0, verified.stdout


def whole(broker: Broker, more: int = 0) -> None:
    """Everything but the damaged record, and the last offset that was committed."""
    end = FIRST + SECOND + more
    everything = {number: value(number) for number in range(end)}
    assert read(broker, 1, 0, end) == everything
    del everything[HURT]
    assert read(broker, 0, 0, end - 1) == everything
    member = consumer(broker)
    (committed,) = member.committed([TopicPartition("t", 0)], timeout=SECONDS)
    assert committed.offset == COMMITTED
    member.close()


def test_a_lost_end_is_noticed(broker: Broker) -> None:
    """It was taken for a torn tail: dozens of acknowledged records went, and the broker was ready."""
    path = journal_file(broker)
    position = entries(broker)[-20].position
    with path.open("r+b") as file:
        file.truncate(position - int(path.stem))
    assert run("verify", str(broker.data)).returncode == 1
    seen = len(broker.log())
    broker.start()
    assert f"journal 0 lost its end at {position}" in broker.log()[seen:]
    assert len(reasons(broker)) == 1
    assert broker.stop() == 0


def test_missing_bytes_below_the_checkpoint_cost_nothing(broker: Broker) -> None:
    """The journal took no write any more, though all of it was in queue logs."""
    broker.start()
    assert broker.stop() == 0
    path = journal_file(broker)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 10)
    seen = len(broker.log())
    broker.start()
    said = [line for line in broker.log()[seen:].splitlines() if " WARNING " in line]
    assert len(said) == 1 and f"0/{path.name} ends at {size - 10}" in said[0] and "nothing is lost" in said[0], said
    assert reasons(broker) == []
    send(broker, range(FIRST + SECOND, FIRST + SECOND + 5))
    everything = {number: value(number) for number in range(FIRST + SECOND + 5)}
    assert read(broker, 0, 0, len(everything)) == everything
    assert broker.stop() == 0
    seen = len(broker.log())
    broker.start()
    assert " WARNING " not in broker.log()[seen:]
    assert broker.stop() == 0
    assert run("verify", str(broker.data)).returncode == 0


def test_every_cut_is_told(broker: Broker) -> None:
    path = journal_file(broker)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"torn" * 25)
    (broker.data / "journal" / "70000").mkdir()
    (broker.data / "journal" / "7x").mkdir()
    seen = len(broker.log())
    broker.start()
    said = [line for line in broker.log()[seen:].splitlines() if " WARNING " in line]
    assert len(said) == 2, said
    assert f"journal 0: truncated the last 100 bytes, from position {int(path.stem) + size}:" in said[0]
    assert said[1].endswith("ignored entries that are not journals of this broker: 70000")
    assert 'cairn_journal_cut_bytes_total{journal="0"} 100' in metrics(broker)
    assert 'journal="1"' not in metrics(broker)
    assert broker.stop() == 0
