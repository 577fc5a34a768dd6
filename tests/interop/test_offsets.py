"""Offsets: bounds of a log, lookup by time, commits, deletion of the oldest records."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from interop.clients.contract import Client, Refused, Sent
from interop.clients.librdkafka import LibrdkafkaClient

NewTopic = Callable[..., str]
OFFSET_OUT_OF_RANGE = 1


@pytest.mark.case("Earliest and latest offsets")
def test_bounds(client: Client, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=2)
    assert client.bounds(topic, 0) == (0, 0)
    admin.produce(topic, [Sent(b"x")] * 7)
    assert client.bounds(topic, 0) == (0, 7)
    assert client.bounds(topic, 1) == (0, 0)


@pytest.mark.case("Offsets for times: exact, between two records, before the first, after the last; batches {variant}")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offsets_for_times(codec: str, client: Client, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic()
    start = time.time_ns() // 1_000_000 - 3_600_000
    for first in range(0, 20, 5):
        admin.produce(topic, [Sent(b"x", timestamp=start + 1000 * n) for n in range(first, first + 5)], codec=codec)
    for n in (0, 3, 5, 14, 19):
        assert client.offset_for_time(topic, 0, start + 1000 * n) == n
        assert client.offset_for_time(topic, 0, start + 1000 * n - 1) == n
    assert client.offset_for_time(topic, 0, start - 1_000_000) == 0
    assert client.offset_for_time(topic, 0, start + 19_001) is None


@pytest.mark.case("Commit and fetch of offsets without a group membership", needs=["commit"])
def test_commit(client: Client, new_topic: NewTopic, admin: LibrdkafkaClient, free_name: str) -> None:
    topic = new_topic(partitions=2)
    admin.produce(topic, [Sent(b"x")] * 9)
    assert client.committed(free_name, topic, 0) is None
    for offset in (4, 9, 2):
        client.commit(free_name, topic, 0, offset)
        assert client.committed(free_name, topic, 0) == offset
    assert client.committed(free_name, topic, 1) is None
    assert admin.committed(free_name, topic, 0) == 2


@pytest.mark.case("Delete records before an offset", needs=["admin"])
def test_delete_records(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"%d" % n) for n in range(10)])
    assert client.delete_records(topic, 0, 4) == 4
    assert client.bounds(topic, 0) == (4, 10)
    assert [record.offset for record in client.read(topic, start=-2)] == list(range(4, 10))
    with pytest.raises(Refused) as refused:
        client.delete_records(topic, 0, 11)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert client.delete_records(topic, 0, -1) == 10
    assert client.bounds(topic, 0) == (10, 10)
    client.produce(topic, [Sent(b"next")])
    assert [record.offset for record in client.read(topic, start=-2)] == [10]
