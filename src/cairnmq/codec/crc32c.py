"""CRC-32C (Castagnoli), the checksum of Kafka batches and of our journal entries. Pure."""

from __future__ import annotations

from crc32c import crc32c as _crc32c

from cairnmq.types import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of `data`; `value` is the checksum of the bytes before it."""
    return _crc32c(data, value)
