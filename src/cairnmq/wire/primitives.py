"""Unsigned varints and tag sections, and the error for bytes that are not a message. The parts compiled codecs call."""

from __future__ import annotations


class Malformed(Exception):
    """Bytes from the network that are not the message they claim to be; ends their connection, nothing else."""


def read_uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    """At most 32 bits, as in Kafka; longer ones are not numbers but noise."""
    value = shift = 0
    while True:
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
        shift += 7
        if shift > 28:
            break
    raise Malformed("a varint of more than 32 bits")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(view: memoryview, pos: int, count: int) -> int:
    """Steps over `count` tagged fields that nobody here knows."""
    end = len(view)
    for _ in range(count):
        _tag, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        pos += size
        if pos > end:
            raise Malformed("a tagged field is truncated")
    return pos


def tag_section(tags: list[int | bytes]) -> bytes:
    """`tags` is number, payload, number, payload, ... in ascending order."""
    out = [uvarint(len(tags) // 2)]
    for number, payload in zip(tags[::2], tags[1::2], strict=True):
        assert isinstance(number, int) and isinstance(payload, bytes)
        out += (uvarint(number), uvarint(len(payload)), payload)
    return b"".join(out)
