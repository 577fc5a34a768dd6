"""What a compacted topic takes: batches whose records all have keys, in any codec; what it cannot read it refuses."""

from __future__ import annotations

import pytest

from cairnmq.codec.batch import CRC_START
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.compaction_admission import refuse_keyless

CONFIG = LogConfig(compact=True)
LIMIT = 2 << 20


def batch(*keys: bytes | None, codec: int = 0, value: bytes | None = b"v") -> bytearray:
    return bytearray(build_batch([Record(0, 1, key, value) for key in keys], codec=codec))


@pytest.mark.parametrize("codec", range(5))
def test_every_record_needs_a_key(codec: int) -> None:
    assert refuse_keyless(memoryview(batch(b"a", b"", b"c", codec=codec)), CONFIG, LIMIT) is None
    assert refuse_keyless(memoryview(batch(b"a", codec=codec, value=None)), CONFIG, LIMIT) is None
    refusal = refuse_keyless(memoryview(batch(b"a", None, b"c", codec=codec)), CONFIG, LIMIT)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD
    assert "record 1 has no key" in refusal.message


def test_what_does_not_read_back_is_refused() -> None:
    odd = batch(b"a", codec=1)
    odd[70:80] = bytes(10)
    odd[17:21] = crc32c(memoryview(odd)[CRC_START:]).to_bytes(4, "big")
    refusal = refuse_keyless(memoryview(odd), CONFIG, LIMIT)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD and "gzip" in refusal.message


def test_decompression_is_bounded() -> None:
    bomb = memoryview(batch(b"a", codec=4, value=bytes(1 << 20)))
    assert len(bomb) < 1000
    assert refuse_keyless(bomb, CONFIG, LIMIT) is None
    refusal = refuse_keyless(bomb, CONFIG, 20_000)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD and "more than 20000" in refusal.message


def test_what_any_topic_refuses_is_left_to_admission() -> None:
    """A wrong CRC has a code of its own, and so on."""
    wrong = batch(None)
    wrong[20] ^= 1
    assert refuse_keyless(memoryview(wrong), CONFIG, LIMIT) is None
    assert refuse_keyless(memoryview(batch(None))[:40], CONFIG, LIMIT) is None
    assert refuse_keyless(memoryview(batch(None))[:-1], CONFIG, LIMIT) is None
    assert refuse_keyless(memoryview(batch(None)), LogConfig(compact=True, max_message_bytes=10), LIMIT) is None
