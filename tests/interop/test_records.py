"""What a record carries and how it is read: order, headers, nulls, timestamps, reading again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from interop.clients.contract import Client, Refused, Sent
from interop.clients.librdkafka import LibrdkafkaClient

NewTopic = Callable[..., str]
HOUR_MS = 3_600_000
INVALID_TIMESTAMP = 32


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.case("Order within each partition, offsets dense from 0")
def test_order(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    client.produce(topic, [Sent(b"%d" % n, partition=part) for part in range(3) for n in range(200)])
    got = client.read(topic, range(3))
    for part in range(3):
        mine = [record for record in got if record.partition == part]
        assert [record.offset for record in mine] == list(range(200))
        assert [record.value for record in mine] == [b"%d" % n for n in range(200)]


@pytest.mark.case("Headers: several, in order, repeated, empty")
def test_headers(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = (("trace", b"abc"), ("trace", b"def"), ("empty", b""))
    client.produce(topic, [Sent(b"with", headers=headers), Sent(b"without")])
    got = client.read(topic)
    assert [record.headers for record in got] == [headers, ()]


@pytest.mark.case("A header that is null, told from an empty one", needs=["null header"])
def test_null_header(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = (("none", None), ("empty", b""))
    client.produce(topic, [Sent(b"x", headers=headers)])
    assert [record.headers for record in client.read(topic)] == [headers]


@pytest.mark.case("Null keys and null values, told from empty ones")
def test_nulls(client: Client, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"value", None), Sent(None, b"key"), Sent(b"value", b"key")])
    admin.produce(topic, [Sent(b"", b"")])
    got = [(record.key, record.value) for record in client.read(topic)]
    assert got == [(None, b"value"), (b"key", None), (b"key", b"value"), (b"", b"")]


@pytest.mark.case("Records with one key go to one partition, in order")
def test_keys(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=8)
    client.produce(topic, [Sent(b"%d" % n, b"key-%d" % (n % 20), partition=None) for n in range(200)])
    got = client.read(topic, range(8))
    assert len(got) == 200
    assert len({record.partition for record in got}) > 1
    for key in {record.key for record in got}:
        mine = [record for record in got if record.key == key]
        assert len({record.partition for record in mine}) == 1
        assert [int(record.value or b"") for record in mine] == sorted(int(record.value or b"") for record in mine)


@pytest.mark.case("Timestamps given by the producer", needs=["create time"])
def test_create_time(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    times = [now_ms() - HOUR_MS + n * 7 for n in (0, 3, 1, 2)]
    client.produce(topic, [Sent(b"x", timestamp=stamp) for stamp in times])
    got = client.read(topic)
    assert [record.timestamp for record in got] == times
    assert {record.append_time for record in got} == {False}


@pytest.mark.case("Timestamps given by the broker (LogAppendTime)")
def test_append_time(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    old = None if "create time" in client.lacks else now_ms() - HOUR_MS
    before = now_ms()
    client.produce(topic, [Sent(b"x", timestamp=old)] * 3)
    after = now_ms()
    got = client.read(topic)
    assert len(got) == 3
    assert all(before <= record.timestamp <= after for record in got)
    assert {record.append_time for record in got} <= {True, None}


@pytest.mark.case("A timestamp too far in the future is refused", needs=["create time"])
def test_future_time(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(**{"message.timestamp.after.max.ms": str(HOUR_MS)})
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Sent(b"x", timestamp=now_ms() + 2 * HOUR_MS)])
    assert refused.value.code == INVALID_TIMESTAMP
    assert client.bounds(topic, 0) == (0, 0)


@pytest.mark.case("Reading again gives the same records")
def test_repeated(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"%d" % n, b"k%d" % n) for n in range(50)])
    first = client.read(topic)
    assert len(first) == 50
    assert client.read(topic) == first


@pytest.mark.case("Reading from any offset, also inside a batch")
def test_from_offset(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"%d" % n) for n in range(50)])
    for start in (1, 25, 49):
        assert [record.offset for record in client.read(topic, start=start)] == list(range(start, 50))


@pytest.mark.case("Seek back and forth on one consumer", needs=["seek"])
def test_seek(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"%d" % n) for n in range(30)])
    consumer = client.reader(topic, 0, 0, wait_ms=500)
    try:
        assert [record.offset for record in consumer.take(10)] == list(range(10))
        for start in (3, 27, 0):
            consumer.seek(0, start)
            assert [record.offset for record in consumer.take(3)] == [start, start + 1, start + 2]
    finally:
        consumer.close()


@pytest.mark.case("Reading outside the log is an error, not a silence", needs=["seek", "range error"])
def test_out_of_range(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"x")])
    consumer = client.reader(topic, 0, 1_000, wait_ms=500)
    try:
        with pytest.raises(Refused, match="(?i)out.?of.?range"):
            consumer.take(1)
    finally:
        consumer.close()


@pytest.mark.case("A waiting consumer gets a record when it is written, not when its fetch times out")
def test_long_poll(client: Client, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic()
    wait_ms = 20_000
    admin.produce(topic, [Sent(b"first")])
    consumer = client.reader(topic, 0, 0, wait_ms=wait_ms)
    try:
        # The first record shows that the consumer is at work; that nothing follows, that its next fetch is parked.
        assert [record.value for record in consumer.take(1)] == [b"first"]
        for n in range(3):
            assert consumer.take(1, seconds=0.3) == []
            admin.produce(topic, [Sent(b"%d" % n)])
            sent = time.monotonic()
            assert [record.value for record in consumer.take(1, seconds=wait_ms / 1000)] == [b"%d" % n]
            assert time.monotonic() - sent < wait_ms / 1000 / 2
    finally:
        consumer.close()
