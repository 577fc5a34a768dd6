"""Kafka's Java partitioner: known hashes, and the same answers as aiokafka's port of it."""

from __future__ import annotations

import random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2

from cairnmq.codec.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_partitions_are_in_range() -> None:
    places = {partition_for(f"key-{i}".encode(), 7) for i in range(200)}
    assert places == set(range(7))


def test_a_negative_hash_gives_a_partition() -> None:
    assert partition_for(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


def test_aiokafka_agrees_at_every_length() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(size) for size in range(70) for _ in range(5)]
    assert [murmur2(key) for key in keys] == [aiokafka_murmur2(key) & 0xFFFFFFFF for key in keys]
