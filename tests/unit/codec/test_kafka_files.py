"""Kafka's small files, as a Kafka 4.1 wrote them, and with something wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.codec import kafka_files
from cairnmq.codec.kafka_files import BadFile, ProducerSnapshot
from cairnmq.types import TopicPartition

# A Kafka 4.1.1 wrote it behind five transactions of one producer.
SNAPSHOT = bytes.fromhex(
    "0001f7e1427e000000010000000000000003000000000022000000000000002600000006000001a1e10104b600000000ffffffffffffffff"
)


def test_properties() -> None:
    meta = b"#\n#Sun Nov 15\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    assert kafka_files.read_properties(meta) == {
        "node.id": "1",
        "version": "1",
        "cluster.id": "MkU3OEVBNTcwNTJENDM2Qg",
    }
    topic_id = kafka_files.read_topic_id(b"version: 0\ntopic_id: TPxO8Z8ARdq8nou0bbqLPA")
    assert topic_id.hex() == "4cfc4ef19f0045dabc9e8bb46dba8b3c"


def test_checkpoints() -> None:
    found = kafka_files.read_offset_checkpoint(b"0\n2\na-b 1 50\na 0 365\n")
    assert found == {TopicPartition("a-b", 1): 50, TopicPartition("a", 0): 365}
    assert kafka_files.read_offset_checkpoint(b"0\n0\n") == kafka_files.read_offset_checkpoint(b"") == {}
    assert kafka_files.read_leader_epochs(b"0\n2\n0 0\n7 365\n") == [(0, 0), (7, 365)]


def test_producer_snapshot() -> None:
    assert kafka_files.read_producer_snapshot(SNAPSHOT) == [
        ProducerSnapshot(3, 0, 34, 38, 6, 0x1A1E10104B6, 0, -1),
    ]


@pytest.mark.parametrize(
    ("read", "data", "why"),
    [
        (kafka_files.read_properties, b"node.id", "not NAME=VALUE"),
        (kafka_files.read_properties, b"\xff=1", "not text"),
        (kafka_files.read_topic_id, b"version: 0\ntopic_id: AAAA", "not a topic id"),
        (kafka_files.read_topic_id, b"version: 0", "not a topic id"),
        (kafka_files.read_offset_checkpoint, b"\n", "version ''"),
        (kafka_files.read_offset_checkpoint, b"1\n0\n", "version '1'"),
        (kafka_files.read_offset_checkpoint, b"0\n2\na 0 1\n", "1 lines, but the header says '2'"),
        (kafka_files.read_offset_checkpoint, b"0\n1\na 0\n", "malformed checkpoint line"),
        (kafka_files.read_offset_checkpoint, b"0\n1\na 0 x\n", "malformed checkpoint line"),
        (kafka_files.read_leader_epochs, b"0\n1\n0 0 0\n", "malformed checkpoint line"),
        (kafka_files.read_producer_snapshot, b"", "0 bytes"),
        (kafka_files.read_producer_snapshot, b"\x00\x02" + SNAPSHOT[2:], "version 2"),
        (kafka_files.read_producer_snapshot, SNAPSHOT[:-1] + b"\xfe", "CRC"),
        (kafka_files.read_producer_snapshot, SNAPSHOT[:-1], "CRC"),
    ],
)
def test_what_is_wrong_is_said(read: Callable[[bytes], object], data: bytes, why: str) -> None:
    with pytest.raises(BadFile, match=why):
        read(data)
