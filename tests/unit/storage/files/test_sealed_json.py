"""A small file of JSON: no flipped bit and no cut goes unnoticed."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.storage.files.sealed_json import holds, is_sealed, seal


class Content(Struct):
    name: str
    number: int


def test_it_is_json_and_holds() -> None:
    data = seal(Content("a", 7))
    assert data.startswith(b'{"name":"a","number":7,"crc":') and msgspec.json.decode(data)["number"] == 7
    assert holds(data) and is_sealed(data)


def test_damage_is_noticed() -> None:
    data = seal(Content("a", 7))
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 4
        assert not holds(bytes(bad)) and not holds(data[:at]), at
    assert not is_sealed(b'{"name":"a"}') and not holds(b'{"name":"a"}')
