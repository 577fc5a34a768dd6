"""Varints at the edges of their widths, tag sections at their ends."""

from __future__ import annotations

import pytest

from cairnmq.wire.primitives import Malformed, read_uvarint, skip_tags, tag_section, uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "80 01"),
        (16383, "ff 7f"),
        (16384, "80 80 01"),
        (2**31 - 1, "ff ff ff ff 07"),
        (2**32 - 1, "ff ff ff ff 0f"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert uvarint(value).hex(" ") == encoded
    assert read_uvarint(memoryview(bytes.fromhex("ee" + encoded)), 1) == (value, len(uvarint(value)) + 1)


@pytest.mark.parametrize("encoded", ["80 80 80 80 10", "ff ff ff ff 7f", "80 80 80 80 80 00", "ff ff ff ff ff ff 01"])
def test_varints_of_more_than_32_bits_are_malformed(encoded: str) -> None:
    with pytest.raises(Malformed):
        read_uvarint(memoryview(bytes.fromhex(encoded)), 0)


def test_tag_sections() -> None:
    section = tag_section([0, b"abc", 200, b""])
    assert section.hex(" ") == "02 00 03 61 62 63 c8 01 00"
    assert skip_tags(memoryview(section), 1, 2) == len(section)
    with pytest.raises(Malformed):
        skip_tags(memoryview(section[:4]), 1, 1)
