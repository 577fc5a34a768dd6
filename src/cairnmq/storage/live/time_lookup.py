"""Lookups by time: a record in a batch, and the largest timestamp of a queue's log and tail."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import UNPACKED_BYTES_MAX, decode_batch, wrapped
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.segments.queue_reader import QueueReader
from cairnmq.types import Buffer


class Found(Struct, frozen=True, gc=False):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class Newest(Struct, frozen=True, gc=False):
    """The largest timestamp, and the first offset of the first batch that has it."""

    timestamp: int
    offset: int


def newest_in_log(pack_set: PackSet, queue: Queue, reader: QueueReader | None) -> Newest | None:
    """Of what is split, in packs and with `reader` in segments. Blocks, and may run on any thread."""
    start, packed_end, found = queue.log_start, queue.packed_end, None
    if start < packed_end and (time := pack_set.largest_timestamp(queue.queue_id, start)) >= 0:
        place = pack_set.find_time(queue.queue_id, time, start, packed_end)
        found = Newest(time, place.base_offset) if place is not None else None
    if reader is not None and (known := reader.newest(max(start, packed_end), queue.split_end)) is not None:
        if found is None or known.time > found.timestamp:
            found = Newest(known.time, known.base)
    return found


def newest_in_tail(queue: Queue) -> Newest | None:
    """Of what is visible and not split."""
    tail = queue.tail
    if tail is None:
        return None
    visible = bisect_left(tail.offsets, queue.high_watermark)
    index = max(range(visible), key=tail.timestamps.__getitem__, default=-1)
    return Newest(tail.timestamps[index], tail.offsets[index]) if index >= 0 and tail.timestamps[index] >= 0 else None


def find_record(batch: Buffer, timestamp: int, log_start: int, unpacked_max: int = UNPACKED_BYTES_MAX) -> Found | None:
    """The first record of a batch that reaches `timestamp`. Decompresses, so it takes its time; any thread.

    Nobody has checked what the producer wrote into its records: an offset outside of the batch is not believed.
    """
    header = read_header(batch)
    first = max(log_start, header.base_offset)
    for record in decode_batch(batch, limit=unpacked_max):
        time = wrapped(record.timestamp)
        if time >= timestamp and first <= record.offset <= header.last_offset:
            return Found(record.offset, time, header.leader_epoch)
    return None
