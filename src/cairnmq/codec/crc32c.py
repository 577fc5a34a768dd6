"""CRC-32C (Castagnoli), the checksum of Kafka batches and of our journal entries. Pure twin of _crc32c.pyx."""

from __future__ import annotations

from cairnmq.kernels import pick
from cairnmq.types import Buffer


@pick
def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of `data`; `value` is the checksum of the bytes before it."""
    return _by_package(data, value)


if crc32c.__module__ == __name__:  # there is no kernel; else the package is not even loaded
    from crc32c import crc32c as _by_package
