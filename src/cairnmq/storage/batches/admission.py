"""May this batch be appended? Kafka's checks on what a producer sent, by the header alone. Pure.

Pure twin of _admission.pyx, which only accepts: whatever it would refuse it hands over to be refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from cairnmq.codec.batch import (
    CONTROL_BIT,
    CRC_START,
    EMPTY_DELTA_MAX,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.files.format import ENTRY_LENGTH_MAX
from cairnmq.types import OWN_PRODUCERS_FROM

KEPT_END_MAX = 2**62  # what is produced behind it must have room too
KEPT_GAPS_MAX = 1000 * (EMPTY_DELTA_MAX + 1)  # for each empty batch, made in one turn of the loop

# attributes, maximum timestamp, producer id, producer epoch, base sequence, record count
Admitted: TypeAlias = tuple[int, int, int, int, int, int]


def admit(batch: memoryview, config: LogConfig, now_ms: int) -> Admitted | Refusal:
    """`batch` is exactly what the producer put into one partition of its request."""
    size = len(batch)
    if size < HEADER_SIZE:
        return Refusal(ErrorCode.INVALID_RECORD, "shorter than a batch header")
    _, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp, pid, epoch, sequence, count = (
        HEADER.unpack_from(batch)
    )
    if magic != MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"record format {magic}; only version 2 is supported")
    if length + LENGTH_OVERHEAD != size:
        return Refusal(ErrorCode.INVALID_RECORD, "exactly one complete record batch per partition is expected")
    if size > config.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes; max.message.bytes={config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        return Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes; segment.bytes={config.segment_bytes}")
    if crc32c(batch[CRC_START:]) != crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match its bytes")
    if count <= 0 or count != delta + 1:
        return Refusal(ErrorCode.INVALID_RECORD, f"{count} records, last offset delta {delta}")
    if attributes & CONTROL_BIT:
        return Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if attributes & TRANSACTIONAL_BIT and pid < 0:
        return Refusal(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if pid >= 0 and sequence < 0:
        return Refusal(ErrorCode.INVALID_RECORD, "an idempotent batch needs a sequence number")
    if not config.append_time and max_timestamp != NO_TIMESTAMP:
        if max_timestamp - now_ms > config.timestamp_after_max_ms:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {max_timestamp} is more than message.timestamp.after.max.ms ahead of {now_ms}",
            )
        if now_ms - base_timestamp > config.timestamp_before_max_ms:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {base_timestamp} is more than message.timestamp.before.max.ms behind {now_ms}",
            )
    return attributes, max_timestamp, pid, epoch, sequence, count


class Span(Struct, frozen=True, gc=False):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int


def admit_kept(batches: Sequence[memoryview], span: Span, queue_end: int) -> list[BatchHeader] | Refusal:
    """May these batches follow with the offsets they have? Their headers if so.

    They come from a Kafka log, where all checks on what a producer sends were made once: here only what storage itself
    relies on is checked. `queue_end` is the next offset the queue would give.
    """
    if span.start != queue_end and queue_end != 0:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"the partition ends at offset {queue_end}, not at {span.start}")
    if not 0 <= span.start <= span.end <= KEPT_END_MAX:
        return Refusal(ErrorCode.INVALID_REQUEST, f"offsets from {span.start} to {span.end}")
    headers = []
    at, uncovered = span.start, span.end - span.start
    for batch in batches:
        header = _whole(batch)
        if isinstance(header, Refusal):
            return header
        if header.base_offset < at or header.last_offset >= span.end or header.last_offset_delta < 0:
            return Refusal(
                ErrorCode.INVALID_RECORD,
                f"a batch with offsets {header.base_offset} to {header.last_offset} between {at} and {span.end}",
            )
        if not 0 <= header.count <= header.last_offset_delta + 1:
            return Refusal(
                ErrorCode.INVALID_RECORD,
                f"offset {header.base_offset}: {header.count} records, last offset delta {header.last_offset_delta}",
            )
        if header.producer_id >= OWN_PRODUCERS_FROM:
            return Refusal(
                ErrorCode.INVALID_RECORD,
                f"offset {header.base_offset}: producer id {header.producer_id} may belong to a producer of this "
                f"broker",
            )
        at = header.last_offset + 1
        uncovered -= header.last_offset_delta + 1
        headers.append(header)
    if uncovered > KEPT_GAPS_MAX:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{uncovered} of the offsets from {span.start} to {span.end} are in no batch; at most {KEPT_GAPS_MAX} may",
        )
    return headers


def _whole(batch: memoryview) -> BatchHeader | Refusal:
    if len(batch) < HEADER_SIZE:
        return Refusal(ErrorCode.INVALID_RECORD, "shorter than a batch header")
    header = read_header(batch)
    if header.magic != MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"record format {header.magic}; only version 2 is supported")
    if header.size != len(batch) or len(batch) > ENTRY_LENGTH_MAX:
        return Refusal(ErrorCode.INVALID_RECORD, f"{len(batch)} bytes for a batch of {header.size}")
    if crc32c(batch[CRC_START:]) != header.crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"the CRC of the batch at {header.base_offset} does not match")
    return header
