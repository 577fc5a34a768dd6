"""May this batch be appended? Kafka's checks on what a producer sent, by the header alone. Pure."""

from __future__ import annotations

from cairnmq.codec.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig

NO_TIMESTAMP = -1


def admit(header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int) -> Refusal | None:
    """`batch` is exactly what the producer put into one partition of its request, at least a header long."""
    size = len(batch)
    if header.magic != MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"record format {header.magic}; only version 2 is taken")
    if header.length + LENGTH_OVERHEAD != size:
        return Refusal(ErrorCode.INVALID_RECORD, "exactly one whole record batch per partition is taken")
    if size > config.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes; max.message.bytes={config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        return Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes; segment.bytes={config.segment_bytes}")
    if crc32c(batch[CRC_START:]) != header.crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match its bytes")
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        return Refusal(
            ErrorCode.INVALID_RECORD, f"{header.count} records, last offset delta {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_BIT:
        return Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.attributes & TRANSACTIONAL_BIT:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Refusal(ErrorCode.INVALID_RECORD, "an idempotent batch needs a sequence number")
    if not config.append_time and header.max_timestamp != NO_TIMESTAMP:
        if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead of {now_ms}",
            )
        if now_ms - header.base_timestamp > config.timestamp_before_max_ms:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms behind {now_ms}",
            )
    return None


__all__ = ["HEADER_SIZE", "admit"]
