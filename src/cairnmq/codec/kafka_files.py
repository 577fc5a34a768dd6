"""The small files that Apache Kafka keeps beside its segments: names, checkpoints, producer snapshots. Pure.

Whatever cannot be read is a `BadFile` that says why; the caller knows the file's name.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable
from struct import Struct as Layout
from typing import TypeVar

from msgspec import Struct

from cairnmq.codec.crc32c import crc32c
from cairnmq.types import TopicPartition

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED)
SNAPSHOT = ".snapshot"
METADATA_SNAPSHOT = ".checkpoint"  # batches, as in a segment
CLEAN_STOP = ".kafka_cleanshutdown"
QUORUM_STATE = "quorum-state"

Row = TypeVar("Row")

_SNAPSHOT_HEAD = Layout(">hIi")  # version, CRC, number of producers
_SNAPSHOT_CRC_FROM = 6
_SNAPSHOT_ROW = Layout(">qhiqiqiq")


class BadFile(Exception):
    """These bytes are not what the file's name says."""


class ProducerSnapshot(Struct, frozen=True):
    """A producer as Kafka remembers it at the end of a segment. Without an open transaction txn_first_offset is -1."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def read_properties(data: bytes) -> dict[str, str]:
    """`name=value` or `name: value` lines, as in meta.properties and partition.metadata."""
    found = {}
    for line in _lines(data):
        if line and not line.startswith("#"):
            cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
            if cut <= 0:
                raise BadFile(f"not NAME=VALUE: {line!r}")
            found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found


def read_topic_id(data: bytes) -> bytes:
    """The topic id of a partition.metadata."""
    text = read_properties(data).get("topic_id", "")
    try:
        found = urlsafe_b64decode(text + "==")
    except ValueError:
        found = b""
    if len(found) != 16:
        raise BadFile(f"not a topic id: {text!r}")
    return found


def read_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """`topic partition offset` lines behind a version and a count."""

    def row(words: list[str]) -> tuple[TopicPartition, int]:
        topic, partition, offset = words
        return TopicPartition(topic, int(partition)), int(offset)

    return dict(_counted(data, row))


def read_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, first offset) of each leader, from leader-epoch-checkpoint."""

    def row(words: list[str]) -> tuple[int, int]:
        epoch, offset = words
        return int(epoch), int(offset)

    return _counted(data, row)


def read_producer_snapshot(data: bytes) -> list[ProducerSnapshot]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise BadFile(f"{len(data)} bytes; the header alone has {_SNAPSHOT_HEAD.size}")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise BadFile(f"version {version}; 1 is known")
    if crc32c(data[_SNAPSHOT_CRC_FROM:]) != crc:
        raise BadFile("the CRC does not match")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ROW.size:
        raise BadFile(f"{count} producers in {len(data)} bytes")
    return [ProducerSnapshot(*row) for row in _SNAPSHOT_ROW.iter_unpack(data[_SNAPSHOT_HEAD.size :])]


def _lines(data: bytes) -> list[str]:
    try:
        return [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError:
        raise BadFile("not text") from None


def _counted(data: bytes, row: Callable[[list[str]], Row]) -> list[Row]:
    if not data:
        return []  # as Kafka makes it, before it has anything to write down
    version, count, *lines = [*_lines(data), "", ""]
    lines = [line for line in lines if line]
    if version != "0":
        raise BadFile(f"version {version!r} where 0 is known")
    if count != str(len(lines)):
        raise BadFile(f"{len(lines)} lines, but the header says {count!r}")
    try:
        return [row(line.split()) for line in lines]
    except ValueError:
        raise BadFile("malformed checkpoint line") from None
