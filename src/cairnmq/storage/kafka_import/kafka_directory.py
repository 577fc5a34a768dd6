"""An Apache Kafka log directory: which partitions it holds, and what the files beside them say."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from cairnmq.codec import kafka_files
from cairnmq.codec.kafka_files import BadFile
from cairnmq.codec.records import Record
from cairnmq.storage.batches.batch_scan import scan_batches
from cairnmq.storage.files.disk import Disk, RealDisk
from cairnmq.storage.kafka_import.kafka_log import KafkaLog, Unimportable, check_log, data_records
from cairnmq.types import TopicPartition

T = TypeVar("T")

CONSUMER_OFFSETS = "__consumer_offsets"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL = (CONSUMER_OFFSETS, "__transaction_state", "__share_group_state", CLUSTER_METADATA)
LOCK = ".lock"
_METADATA_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,6})")
_ON_THE_WAY_OUT = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")


class KafkaPartition(Struct):
    """A partition's directory, before its segments are read."""

    place: TopicPartition
    disk: Disk  # of the log directory
    root: str
    topic_id: bytes | None
    log_start: int
    recovery_point: int
    high_watermark: int | None
    clean: bool

    def check(self, *, abort_open: bool) -> KafkaLog:
        log = check_log(
            self.place,
            self.disk,
            str(self.place),
            self.root,
            log_start=self.log_start,
            recovery_point=self.recovery_point,
            clean=self.clean,
            abort_open=abort_open,
        )
        if self.high_watermark is not None and log.start <= self.high_watermark < log.end:
            log.notes.append(
                f"{self.root}: {log.end - self.high_watermark} offsets from {self.high_watermark} on are after the "
                f"high watermark that Kafka stored last; they are imported too"
            )
        return log

    def metadata_records(self) -> Iterator[Record]:
        """All of __cluster_metadata: the newest snapshot, then the log behind it."""
        names = [name for name in self.disk.list(str(self.place)) if _METADATA_SNAPSHOT.fullmatch(name)]
        end = 0
        if names:
            newest = max(names)
            end = int(newest[:20])
            file = self.disk.open(f"{self.place}/{newest}")
            for batch in scan_batches(file):
                yield from data_records(f"{self.root}/{newest}", batch)
            file.close()
        log = self.check(abort_open=True)
        yield from log.decoded(max(end, log.opens_at))


class KafkaDirectory(Struct):
    """What one log directory of one Kafka broker holds."""

    root: str
    cluster_id: str
    node_id: str
    partitions: list[KafkaPartition]
    notes: list[str]


def open_directory(root: str) -> KafkaDirectory:
    """Reads names and small files only. Refuses a directory that a Kafka uses at the moment."""
    if not os.path.isdir(root):
        is_file = os.path.exists(root)
        raise Unimportable(f"{root}: is a file, not a directory" if is_file else f"{root}: no such directory")
    disk = RealDisk(root)
    _refuse_if_used(root)
    meta = _read(disk, kafka_files.META_PROPERTIES) or b""
    properties = _parsed(root, kafka_files.META_PROPERTIES, kafka_files.read_properties, meta)
    notes: list[str] = []
    recovery = _checkpoint(disk, root, kafka_files.RECOVERY_POINTS)
    watermarks = _checkpoint(disk, root, kafka_files.HIGH_WATERMARKS)
    starts = _checkpoint(disk, root, kafka_files.LOG_STARTS)
    partitions = []
    for name in disk.list(""):
        match = _PARTITION.fullmatch(name)
        if not os.path.isdir(f"{root}/{name}"):
            continue
        if match is None or _ON_THE_WAY_OUT.fullmatch(name):
            notes.append(f"{root}/{name}: not a live partition, left out")
            continue
        place = TopicPartition(match["topic"], int(match["partition"]))
        path = f"{root}/{name}"
        metadata = _read(disk, f"{name}/{kafka_files.PARTITION_METADATA}")
        partitions.append(
            KafkaPartition(
                place,
                disk,
                path,
                _parsed(path, kafka_files.PARTITION_METADATA, kafka_files.read_topic_id, metadata)
                if metadata
                else None,
                starts.get(place, 0),
                recovery.get(place, 0),
                watermarks.get(place),
                disk.exists(kafka_files.CLEAN_STOP),
            )
        )
    if not properties and not partitions:
        raise Unimportable(
            f"{root} is not a Kafka log directory: "
            f"found neither {kafka_files.META_PROPERTIES} nor any TOPIC-PARTITION directory"
        )
    return KafkaDirectory(root, properties.get("cluster.id", "?"), properties.get("node.id", "?"), partitions, notes)


def by_topic(directories: Iterable[KafkaDirectory]) -> dict[str, dict[int, KafkaPartition]]:
    """All partitions by topic and number; the same one twice, or of two topics of one name, cannot be imported."""
    topics: dict[str, dict[int, KafkaPartition]] = {}
    for directory in directories:
        for found in directory.partitions:
            others = topics.setdefault(found.place.topic, {})
            twin = others.get(found.place.partition)
            if twin is not None:
                raise Unimportable(
                    f"{found.place} lies in {twin.root} and in {found.root}; give the directories of one broker, or "
                    f"only one of the replicas"
                )
            for other in others.values():
                if other.topic_id != found.topic_id and None not in (other.topic_id, found.topic_id):
                    raise Unimportable(f"{found.root} and {other.root} belong to different topics of the same name")
            others[found.place.partition] = found
    return topics


def _refuse_if_used(root: str) -> None:
    """Kafka holds a POSIX lock on a file while it runs."""
    try:
        fd = os.open(f"{root}/{LOCK}", os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        raise Unimportable(
            f"{root}: directory is locked by a running Kafka broker; stop it first, or import a copy"
        ) from None
    finally:
        os.close(fd)


def _read(disk: Disk, name: str) -> bytes | None:
    if not disk.exists(name):
        return None
    file = disk.open(name)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _checkpoint(disk: Disk, root: str, name: str) -> dict[TopicPartition, int]:
    data = _read(disk, name)
    return {} if data is None else _parsed(root, name, kafka_files.read_offset_checkpoint, data)


def _parsed(root: str, name: str, parse: Callable[[bytes], T], data: bytes) -> T:
    try:
        return parse(data)
    except BadFile as error:
        raise Unimportable(f"{root}/{name}: {error}") from None
