"""What the driver sees of topics: which there are, where they begin and end, whether anything new has come."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cairnmq.client.blocking import Client
from cairnmq.client.errors import Absent, ClientError
from cairnmq.client.records import LATEST
from cairnmq.client.session import Topic
from cairnmq.codec.batch import read_header
from cairnmq.errors import ErrorCode
from cairnmq.spark.byte_limit import Seen, seen
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.options import Connection, Selection
from cairnmq.spark.progress import Progress, TopicProgress
from cairnmq.types import TopicPartition

POLL_MS = 200
# The more is looked at, the better a limit in bytes is kept, and the more is read twice.
SAMPLE_BYTES = 4 * 1024 * 1024
SAMPLE_PARTITION_BYTES = 64 * 1024


def connect(connection: Connection, *, wait: bool = True) -> Client:
    """`wait`: a broker that is away may come back; without, whoever has just started a query hears of it at once."""
    where, name = connection.bootstrap, connection.client_id
    try:
        return Client.connect(where, name, connection.timeout, connection.patience, wait=wait)
    except ClientError as error:
        sentence = str(error).replace("use -b HOST:PORT", "see the option kafka.bootstrap.servers")
        raise SparkSourceError(sentence) from None


class TopicView:
    """Connects when first asked. Not for tasks, which know what to read."""

    def __init__(self, connection: Connection, selection: Selection, read_committed: bool) -> None:
        self._connection = connection
        self._selection = selection
        self._read_committed = read_committed
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = connect(self._connection, wait=False)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def topics(self, *, missing_is_fatal: bool = True) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Id and partitions of each topic that is to be read, as they are now."""
        selection = self._selection
        if selection.pattern:
            pattern = re.compile(selection.pattern)
            found = self.client.metadata(None).topics
            names = [name for name in sorted(found) if pattern.fullmatch(name) and not name.startswith("__")]
            there = (self._there(found[name]) for name in names if not found[name].internal)
            return {topic.name: _described(topic) for topic in there if topic is not None}
        described = {}
        wanted = selection.topics or tuple(selection.assigned)
        found = self.client.metadata(wanted).topics
        for name in wanted:
            topic = self._there(found[name])
            if topic is None and missing_is_fatal:
                raise Absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
            if topic is None:
                continue
            topic_id, partitions = _described(topic)
            for index in selection.assigned.get(name, ()):
                topic.partition(index)
            described[name] = topic_id, selection.assigned.get(name, partitions)
        return described

    def lookup(self, topic: str, partitions: Sequence[int], time: int) -> Mapping[int, int]:
        """Offsets at a time, or at EARLIEST or LATEST: with committed reads that is the end of what is decided."""
        return self._lookup_all({topic: partitions}, time)[topic]

    def latest(self, *, missing_is_fatal: bool = True) -> Progress:
        found = self.topics(missing_is_fatal=missing_is_fatal)
        partitions = {name: indexes for name, (_, indexes) in found.items()}
        try:
            ends = self._lookup_all(partitions, LATEST)
        except Absent:
            if missing_is_fatal:
                raise
            ends = {}
            for name, indexes in partitions.items():  # one of them was deleted a moment ago
                with suppress(Absent):
                    ends[name] = self.lookup(name, indexes, LATEST)
        return Progress({name: TopicProgress(found[name][0], dict(sorted(ends[name].items()))) for name in ends})

    def publish(self, group: str, progress: Progress) -> None:
        """Commits offsets for a group that nobody joins, so that tools see how far the query is. What is gone, or is
        another topic by now, is left out: what that means for the query is told by the next look at what there is."""
        there = self.client.metadata(list(progress.topics)).topics
        offsets = {
            TopicPartition(name, index): offset
            for name, topic in progress.topics.items()
            if name in there and there[name].topic_id.hex() == topic.id
            for index, offset in topic.offsets.items()
        }
        if offsets:
            with suppress(Absent):  # deleted a moment ago
                self.client.offset_commit(group, offsets)

    def wait_for_more(self, progress: Progress) -> None:
        """Returns when there is a record behind what was read, or after a moment."""
        positions = {name: topic.offsets for name, topic in progress.topics.items() if topic.offsets}
        if positions:
            try:
                self.client.fetch(
                    positions,
                    max_wait_ms=POLL_MS,
                    max_bytes=1,
                    partition_max_bytes=1,
                    read_committed=self._read_committed,
                )
                return
            except Absent:
                pass  # deleted: the next look at what there is tells what that means for the query
        time.sleep(POLL_MS / 1000)  # there is nothing that a broker could wait for

    def sample(self, positions: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, Seen]]:
        """What the next records of some of the partitions take: of those whose batches come first."""
        fetched = self.client.fetch(
            positions,
            max_wait_ms=0,
            max_bytes=SAMPLE_BYTES,
            partition_max_bytes=max(SAMPLE_BYTES // sum(map(len, positions.values())), SAMPLE_PARTITION_BYTES),
            read_committed=self._read_committed,
        )
        samples: dict[str, dict[int, Seen]] = {}
        for each in fetched:
            position = positions[each.topic][each.partition]
            samples.setdefault(each.topic, {})[each.partition] = seen(position, map(read_header, each.batches))
        return samples

    def _lookup_all(self, topics: Mapping[str, Sequence[int]], time: int) -> dict[str, Mapping[int, int]]:
        found = self.client.list_offsets_of(topics, time, read_committed=self._read_committed)
        return {name: {index: each.offset for index, each in parts.items()} for name, parts in found.items()}

    def _there(self, topic: Topic) -> Topic | None:
        """None: there is none. Any other error does not say so: waits, or tells what is wrong."""
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not topic.error or topic.error == missing:
            return None if topic.error else topic
        try:
            return self.client.topic(topic.name)
        except Absent as absent:
            if absent.code != missing:
                raise
            return None  # deleted a moment ago


def _described(topic: Topic) -> tuple[str, tuple[int, ...]]:
    return topic.topic_id.hex(), tuple(partition.index for partition in topic.partitions)
