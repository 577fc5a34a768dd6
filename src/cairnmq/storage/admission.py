"""May this batch be appended? Kafka's checks on what a producer sent, by the header alone. Pure.

Pure twin of _admission.pyx, which only accepts: whatever it would refuse it hands over to be refused here.
"""

from __future__ import annotations

from typing import TypeAlias

from cairnmq.codec.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig

NO_TIMESTAMP = -1

# attributes, maximum timestamp, producer id, producer epoch, base sequence, record count
Admitted: TypeAlias = tuple[int, int, int, int, int, int]


def admit(batch: memoryview, config: LogConfig, now_ms: int) -> Admitted | Refusal:
    """`batch` is exactly what the producer put into one partition of its request."""
    size = len(batch)
    if size < HEADER_SIZE:
        return Refusal(ErrorCode.INVALID_RECORD, "not even a batch header")
    _, length, _, magic, crc, attributes, delta, base_timestamp, max_timestamp, pid, epoch, sequence, count = (
        HEADER.unpack_from(batch)
    )
    if magic != MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"record format {magic}; only version 2 is taken")
    if length + LENGTH_OVERHEAD != size:
        return Refusal(ErrorCode.INVALID_RECORD, "exactly one whole record batch per partition is taken")
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
    if attributes & TRANSACTIONAL_BIT:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
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
