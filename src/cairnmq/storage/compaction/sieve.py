"""What compaction leaves of each batch, and how the rest is woven into a log without holes. Pure; docs/compaction.md.

The rules are those of Kafka 4's cleaner. What differs: where batches are gone an empty one stands for their offsets, so
that each batch still goes on where the one before ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from cairnmq.codec.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    EMPTY_DELTA_MAX,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_MAX,
    TRANSACTIONAL_BIT,
    BatchHeader,
    empty_batch,
    hollow_batch,
    read_header,
    set_offset_and_epoch,
)
from cairnmq.codec.compression import CodecMissing, Undecodable, decompress
from cairnmq.codec.records import UNPACKED_BYTES_MAX, rebuilt_batch
from cairnmq.kernels import pick
from cairnmq.storage.batches import key_map
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges
from cairnmq.storage.files.format import BATCH, Entry, ProducerRow
from cairnmq.types import Buffer

KeyMap = pick(key_map.KeyMap)


class Pass(Struct, frozen=True):
    """What holds for one pass over a queue. `end`: offsets from here on are not in the map, and stay.

    `covers_all`: everything older of the queue is part of the pass; only then may a tombstone or a marker go.
    `keeps_markers`: none goes, because what the queue's row says of aborted transactions would have to change too.
    """

    keys: key_map.KeyMap
    end: int
    now_ms: int
    delete_retention_ms: int
    aborted: AbortedRanges
    producers: Mapping[int, ProducerRow] = {}
    covers_all: bool = True
    keeps_markers: bool = False

    @property
    def delete_horizon(self) -> int:
        """Of tombstones and markers that have none yet; `delete.retention.ms` may be longer than time."""
        return min(self.now_ms + self.delete_retention_ms, TIMESTAMP_MAX)


def body_of(header: BatchHeader, batch: Buffer) -> bytes | memoryview | None:
    """The records of a batch, decompressed; None if nobody can tell."""
    packed = memoryview(batch)[HEADER_SIZE : header.size]
    codec = header.attributes & CODEC_MASK
    if not codec:
        return packed
    try:
        return decompress(codec, packed, UNPACKED_BYTES_MAX)
    except (Undecodable, CodecMissing):
        return None


def note_keys(keys: key_map.KeyMap, batch: Buffer, aborted: AbortedRanges) -> bool:
    """Takes a batch's keys into the map; False: there is no room for them, and the map ends before this batch."""
    header = read_header(batch)
    if header.attributes & CONTROL_BIT or not header.count or aborted.hold(header):
        return True
    if keys.count and keys.count + header.count > keys.limit:
        return False
    body = body_of(header, batch)
    if body is not None:
        try:
            keys.note(body, header.count, header.last_offset_delta, header.base_offset)
        except Undecodable:
            pass  # it stays as it is, and no other record goes because of it
    return True


class Sieve:
    """Batches of a pass, in order. It remembers which transactions still have records."""

    def __init__(self, course: Pass) -> None:
        self.course = course
        self._with_data: set[int] = set()  # producers whose transaction has batches before its marker
        self.gone_markers: set[int] = set()  # their offsets

    def strain(self, batch: Buffer) -> Buffer | None:
        """What is left of it: itself, a smaller one, one without records, or nothing."""
        header = read_header(batch)
        course = self.course
        if header.base_offset >= course.end:
            return batch
        if header.attributes & CONTROL_BIT:
            return self._strain_marker(header, batch)
        if course.aborted.hold(header):
            self._with_data.add(header.producer_id)
            return self._without_records(header)
        if header.attributes & TRANSACTIONAL_BIT:
            self._with_data.add(header.producer_id)
        if not header.count:
            return self._without_records(header)
        body = body_of(header, batch)
        if body is None:
            return batch
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        keeps = horizon is None or course.now_ms < horizon or not course.covers_all
        try:
            kept, tombstones, newest_delta, left = course.keys.sift(
                body, header.count, header.last_offset_delta, header.base_offset, course.end, keeps
            )
        except Undecodable:
            return batch
        if not kept:
            return self._without_records(header)
        new_horizon = course.delete_horizon if tombstones and horizon is None else None
        if left is None and new_horizon is None:
            return batch
        newest = header.base_timestamp + newest_delta
        if header.attributes & APPEND_TIME_BIT or header.max_timestamp == NO_TIMESTAMP or not _is_time(newest):
            newest = header.max_timestamp
        records = bytes(body) if left is None else left
        return rebuilt_batch(header, records, kept, max_timestamp=newest, delete_horizon=new_horizon)

    def _strain_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """The last thing known of a producer stays, and so does the marker of records that are still there."""
        course = self.course
        row = course.producers.get(header.producer_id)
        is_last = row is not None and not row.batches and row.epoch == header.producer_epoch
        if header.producer_id in self._with_data:
            self._with_data.discard(header.producer_id)
            return batch
        if course.keeps_markers or not course.covers_all or is_last:
            return batch
        if header.attributes & DELETE_HORIZON_BIT:
            if course.now_ms < header.base_timestamp:
                return batch
            self.gone_markers.add(header.base_offset)
            return None
        body = body_of(header, batch)
        if body is None:
            return batch
        try:
            return rebuilt_batch(
                header,
                bytes(body),
                header.count,
                max_timestamp=header.max_timestamp,
                delete_horizon=course.delete_horizon,
            )
        except (IndexError, Undecodable):
            return batch

    def _without_records(self, header: BatchHeader) -> Buffer | None:
        """A producer's last batch stays in some form: from it the sequence it must go on with is known."""
        row = self.course.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if row is None or not row.batches or row.batches[-1][2] != header.base_offset:
            return None
        return hollow_batch(header, header.max_timestamp)


class Weaver:
    """Makes one log of what is left: empty batches stand for what is gone, one for each run and leader epoch.

    Batches without records bear the time of the batch behind them (at the end: before them), so that they never are
    the newest; no time index names them.
    """

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.newest = NO_TIMESTAMP  # of the batches with records
        self._waiting: list[BatchHeader] = []  # without records, or gone (count -1)
        self._lost = NO_TIMESTAMP  # the newest time of what waits
        self._last = NO_TIMESTAMP

    def add(self, header: BatchHeader, left: Buffer | None) -> Iterator[Entry]:
        """`header`: of the batch as it was."""
        if left is None or not read_header(left).count:
            self._lost = max(self._lost, header.max_timestamp)
            self._wait(header, gone=left is None)
            return
        kept = read_header(left)
        yield from self._release(kept.max_timestamp)
        self._last = kept.max_timestamp
        self.newest = max(self.newest, kept.max_timestamp)
        yield self._entry(left, kept)

    def finish(self) -> Iterator[Entry]:
        """Before another file begins."""
        if self._last == NO_TIMESTAMP:
            self._last = min(self._lost, self.newest) if self.newest != NO_TIMESTAMP else self._lost
        yield from self._release(self._last)
        self._last = NO_TIMESTAMP

    def _wait(self, header: BatchHeader, *, gone: bool) -> None:
        before = self._waiting[-1] if self._waiting else None
        if (
            gone
            and before is not None
            and before.count < 0
            and before.leader_epoch == header.leader_epoch
            and header.last_offset - before.base_offset <= EMPTY_DELTA_MAX
        ):
            self._waiting[-1] = _spanning(before, header)
        else:
            self._waiting.append(_spanning(header, header) if gone else header)

    def _release(self, timestamp: int) -> Iterator[Entry]:
        for header in self._waiting:
            if header.count < 0:
                data = empty_batch(header.base_offset, header.last_offset, timestamp)
                set_offset_and_epoch(data, header.base_offset, header.leader_epoch)
            else:
                data = hollow_batch(header, timestamp)
            yield self._entry(data, read_header(data))
        self._waiting = []
        self._lost = NO_TIMESTAMP

    def _entry(self, data: Buffer, header: BatchHeader) -> Entry:
        return Entry(
            position=0,
            end=0,
            kind=BATCH,
            epoch=0,
            queue_id=self.queue_id,
            synced=0,
            payload=memoryview(data),
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            count=header.count,
        )


def _is_time(timestamp: int) -> bool:
    """Nobody has checked what a producer writes into its records."""
    return -TIMESTAMP_MAX - 1 <= timestamp <= TIMESTAMP_MAX


def _spanning(first: BatchHeader, last: BatchHeader) -> BatchHeader:
    """A run of batches that are gone."""
    delta = last.last_offset - first.base_offset
    return BatchHeader(first.base_offset, 0, first.leader_epoch, 0, 0, 0, delta, 0, 0, -1, -1, -1, -1)


def compacted(batches: Iterable[Buffer], course: Pass, queue_id: int) -> Iterator[Entry]:
    """All of a pass at once."""
    sieve, weaver = Sieve(course), Weaver(queue_id)
    for batch in batches:
        yield from weaver.add(read_header(batch), sieve.strain(batch))
    yield from weaver.finish()
