"""Compacted topics as each client reads and writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, Message, Producer

from broker_process import Broker, wait_until
from cairnmq.storage.batches.compaction_admission import NO_KEY
from conftest import QUICK_GROUPS
from interop.clients.contract import Client, Got, Refused, Sent
from interop.clients.java import JavaClient
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.roster import CLIENTS, PROGRAMS
from interop.conftest import unused_name
from programs import require_program

SETTINGS = {**QUICK_GROUPS, "log.retention.check.interval.ms": "300", "cairn.checkpoint.interval.ms": "300"}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
KEYS, TURNS = 20, 30
REFUSALS = (87, -1)  # INVALID_RECORD; aiokafka has no word for it


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]) -> Iterator[Broker]:
    """Looks often for what can be compacted."""
    made = broker_kind(tmp_path_factory.mktemp("compacted"), settings=SETTINGS)
    made.start()
    yield made
    made.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    name = str(request.param)
    if name in PROGRAMS:
        require_program(PROGRAMS[name])
    made = CLIENTS[name](broker.bootstrap)
    yield made
    made.close()


def update(turn: int, key: int) -> Sent:
    """Every fifth key ends as a tombstone."""
    gone = turn == TURNS - 1 and key % 5 == 0
    return Sent(None if gone else b"turn %d" % turn, key=b"key-%d" % key)


def state(records: Sequence[Got | Sent]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


@pytest.fixture(scope="module")
def compacted(broker: Broker) -> tuple[str, list[Sent]]:
    """A topic that compaction has been through, and all that was written to it: gaps, tombstones, empty batches."""
    admin = LibrdkafkaClient(broker.bootstrap)
    admin.create_topic("compacted", 1, COMPACT)
    sent = [update(turn, key) for turn in range(TURNS) for key in range(KEYS)]
    for first in range(0, len(sent), KEYS // 2):  # batches of ten: most of them lose all their records
        admin.produce("compacted", sent[first : first + KEYS // 2])

    def is_compacted() -> bool:
        """A segment is closed by the next record that comes: the last key once more, as it was."""
        sent.append(update(TURNS - 1, KEYS - 1))
        admin.produce("compacted", sent[-1:])
        return len(admin.read("compacted")) < len(sent) // 4

    wait_until(is_compacted, 30, "compaction")
    return "compacted", sent


@pytest.mark.case("Compacted topic: the newest record of each key, at its offset; gaps and tombstones disturb nobody")
def test_read_compacted(client: Client, compacted: tuple[str, list[Sent]]) -> None:
    topic, sent = compacted
    records = client.read(topic, start=-2)
    assert [(record.key, record.value) for record in records] == [
        (sent[record.offset].key, sent[record.offset].value) for record in records
    ]
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    assert len(records) < len(sent) // 4
    for start in (0, 1, KEYS * 5 + 3, KEYS * TURNS - KEYS // 2):
        assert state(client.read(topic, start=start)) == state(sent[start:]), f"from {start}"
    # Batches larger than what is asked for come too, also behind a gap.
    assert state(client.read(topic, start=1, size_max=100)) == state(sent[1:])


@pytest.mark.case("Compacted topic: a consumer that began in a gap, and stays, gets what comes")
def test_follow_compacted(client: Client, compacted: tuple[str, list[Sent]], broker: Broker) -> None:
    topic, sent = compacted
    reader = client.reader(topic, 0, KEYS * 3, 200)
    try:
        for _ in range(2):
            while (records := reader.take(1, 20)) and records[0].offset < len(sent) - 1:
                assert records[0].offset >= KEYS * 3
            assert records, f"offset {len(sent) - 1} did not come"
            sent.append(update(TURNS - 1, KEYS - 1))
            LibrdkafkaClient(broker.bootstrap).produce(topic, sent[-1:])
        assert [record.offset for record in reader.take(1, 20)] == [len(sent) - 1]
    finally:
        reader.close()


@pytest.fixture
def new_compacted(request: pytest.FixtureRequest, broker: Broker) -> Callable[[], str]:
    def make() -> str:
        name = unused_name(request.node.name)
        LibrdkafkaClient(broker.bootstrap).create_topic(name, 1, COMPACT)
        return name

    return make


@pytest.mark.case("Compacted topic: a record without a key is refused, one with a key is not")
def test_write_compacted(client: Client, new_compacted: Callable[[], str]) -> None:
    topic = new_compacted()
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Sent(b"keyless")])
    assert refused.value.code in REFUSALS
    client.produce(topic, [Sent(b"kept", key=b"key"), Sent(None, key=b"gone")])
    assert state(client.read(topic)) == {b"key": b"kept", b"gone": None}


KEYLESS = [Sent(b"a", key=b"k"), Sent(b"b"), Sent(b"c", key=b"l"), Sent(b"d")]


@pytest.mark.long  # the client is built
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_java_tells_the_senders_of_records_without_a_key_from_those_of_the_others(
    broker: Broker, new_compacted: Callable[[], str], codec: str
) -> None:
    """KIP-467: the batch is refused as a whole, and each of its records gets an error that says why."""
    require_program(PROGRAMS["java"])
    java = JavaClient(broker.bootstrap)
    topic = new_compacted()
    fates = java.fates(topic, KEYLESS, codec=codec)
    others = [
        "KafkaException",
        "Failed to append record because it was part of a batch which had one more more invalid records",
    ]
    assert fates == [others, ["InvalidRecordException", NO_KEY], others, ["InvalidRecordException", NO_KEY]]
    assert java.read(topic) == []
    assert java.fates(topic, KEYLESS[:2], codec=codec) == [others, ["InvalidRecordException", NO_KEY]]
    assert java.fates(topic, KEYLESS[::2], codec=codec) == [None, None]


@pytest.mark.long  # the client is built
def test_java_tells_the_senders_of_records_with_a_wrong_time(broker: Broker, new_compacted: Callable[[], str]) -> None:
    require_program(PROGRAMS["java"])
    java, topic = JavaClient(broker.bootstrap), new_compacted()
    ahead_ms = int(time.time() * 1000) + 86_400_000
    fates = java.fates(topic, [Sent(b"a", key=b"k"), Sent(b"b", key=b"l", timestamp=ahead_ms)])
    assert fates[0] is not None and fates[0][0] == "KafkaException"
    assert fates[1] is not None and fates[1][0] == "InvalidTimestampException", "the only one: its code is the batch's"
    assert f"timestamp {ahead_ms} is not between" in fates[1][1]


def test_librdkafka_tells_the_senders_of_records_without_a_key_from_those_of_the_others(
    broker: Broker, new_compacted: Callable[[], str]
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20_000})
    told: dict[bytes, KafkaError | None] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        told[value] = error

    topic = new_compacted()
    # flush() ends lingering: a topic the client does not know yet would get its records one by one
    producer.produce(topic, b"known", b"k")
    assert producer.flush(20) == 0
    for record in KEYLESS:
        producer.produce(topic, record.value, record.key, on_delivery=delivered)
    assert producer.flush(20) == 0
    codes = {value: error.code() if error else None for value, error in told.items()}
    other, wrong = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    assert codes == {b"a": other, b"b": wrong, b"c": other, b"d": wrong}
