"""Small files that are one JSON object with a checksum as its last field, so that people can read them too."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.codec.crc32c import crc32c

_SUM = b',"crc":'


def seal(content: Struct) -> bytes:
    """The object, and the CRC of all bytes before that field."""
    body = msgspec.json.encode(content)[:-1]
    return b"%s%s%d}" % (body, _SUM, crc32c(body))


def is_sealed(data: bytes) -> bool:
    """False: it ends without a checksum."""
    return _SUM in data


def holds(data: bytes) -> bool:
    """Whether the checksum is there, and right."""
    body, mark, crc = data.rpartition(_SUM)
    return bool(mark) and crc == b"%d}" % crc32c(body)
