"""How records are sent: codecs, acknowledgements, idempotence, sizes."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import pytest

from broker_process import wait_until
from interop.clients.contract import Client, Refused, Sent
from interop.clients.librdkafka import LibrdkafkaClient

NewTopic = Callable[..., str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_TOO_LARGE = 10
DEFAULT_MAX = 1_048_588


def noise(size: int, seed: int = 0) -> bytes:
    """Text that does not compress to nothing, free of the control characters that kcat needs."""
    return base64.b64encode(random.Random(seed).randbytes(size * 3 // 4 + 3))[:size]


@pytest.mark.case("Codec {variant}: written by one client, read by each")
@pytest.mark.parametrize("codec", CODECS)
def test_codec(codec: str, writer: Client, reader: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [noise(600, seed) * 2 for seed in range(40)]
    writer.produce(topic, [Sent(value, b"key") for value in values], codec=codec)
    got = reader.read(topic)
    assert [record.value for record in got] == values
    assert {record.key for record in got} == {b"key"}


@pytest.mark.case("acks={variant}")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(acks: str, client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"%d" % n) for n in range(20)], acks=acks)
    wait_until(lambda: client.bounds(topic, 0) == (0, 20), 10, "20 records")
    assert [record.value for record in client.read(topic)] == [b"%d" % n for n in range(20)]


@pytest.mark.case("The producer is told each record's offset", needs=["delivery report"])
def test_delivery_report(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert client.produce(topic, [Sent(b"%d" % n) for n in range(100)]) == list(range(100))
    assert client.produce(topic, [Sent(b"more")], acks="1") == [100]


@pytest.mark.case("Idempotent producer")
def test_idempotent(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for start in (0, 500):
        records = [Sent(b"%d" % n, partition=part) for part in range(2) for n in range(start + part, start + 500, 2)]
        client.produce(topic, records, idempotent=True)
    got = client.read(topic, range(2))
    for part in range(2):
        values = [int(record.value or b"") for record in got if record.partition == part]
        assert values == list(range(part, 1000, 2))


@pytest.mark.case("A topic is made by the first record to it")
def test_auto_create(client: Client, free_name: str) -> None:
    assert client.partitions(free_name) == 0
    client.produce(free_name, [Sent(b"first")])
    assert client.partitions(free_name) == 1
    assert [record.value for record in client.read(free_name)] == [b"first"]


@pytest.mark.case("A record close to 1 MB")
def test_large(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    value = noise(1_000_000)
    client.produce(topic, [Sent(value)], size_max=DEFAULT_MAX)
    assert [record.value for record in client.read(topic)] == [value]


@pytest.mark.case("A record of 5 MB with max.message.bytes raised, also for consumers that ask for less")
def test_larger(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(**{"max.message.bytes": "6000000"})
    value = noise(5_000_000)
    client.produce(topic, [Sent(value), Sent(b"after")], size_max=6_000_000)
    assert [record.value for record in client.read(topic, size_max=1_048_576)] == [value, b"after"]


@pytest.mark.case("A record beyond max.message.bytes is refused, and only it")
def test_too_large(client: Client, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"before")])
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Sent(noise(1_100_000))], size_max=10_000_000)
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Sent(b"after")])
    assert [record.value for record in client.read(topic)] == [b"before", b"after"]


@pytest.mark.case("1,000 partitions written and read by one client")
def test_thousand_partitions(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1000)
    assert client.partitions(topic) == 1000
    spread = None if client.name == "kcat" else 0
    records = [Sent(b"%d" % n, b"%d" % n, partition=None if spread is None else n % 1000) for n in range(3000)]
    client.produce(topic, records)
    got = client.read(topic, range(1000))
    assert sorted(int(record.value or b"") for record in got) == list(range(3000))
    for part in {record.partition for record in got}:
        mine = [record for record in got if record.partition == part]
        assert [record.offset for record in mine] == list(range(len(mine)))
