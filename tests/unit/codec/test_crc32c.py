"""CRC-32C against the published check value, and in pieces."""

from __future__ import annotations

from cairnmq.codec.crc32c import crc32c


def test_the_published_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_pieces_give_the_checksum_of_the_whole() -> None:
    whole = bytes(range(256)) * 5
    assert crc32c(memoryview(whole)[100:], crc32c(bytearray(whole[:100]))) == crc32c(whole)
