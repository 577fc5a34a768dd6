"""What a compacted topic takes: batches whose records all have keys, in any codec; what it cannot read it refuses."""

from __future__ import annotations

import pytest

from cairnmq.codec.batch import CRC_START
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.compaction_admission import NO_KEY, refuse_keyless
from cairnmq.storage.batches.record_errors import RefusedRecords

CONFIG = LogConfig(compact=True)
LIMIT = 2 << 20
NOW = 1


def look(
    data: memoryview, config: LogConfig = CONFIG, unpacked_max: int = LIMIT, limit: int = 100, now_ms: int = NOW
) -> Refusal | None:
    return refuse_keyless(data, config, now_ms, unpacked_max=unpacked_max, limit=limit)


def batch(*keys: bytes | None, codec: int = 0, value: bytes | None = b"v") -> bytearray:
    return bytearray(build_batch([Record(0, 1, key, value) for key in keys], codec=codec))


@pytest.mark.parametrize("codec", range(5))
def test_every_record_needs_a_key(codec: int) -> None:
    assert look(memoryview(batch(b"a", b"", b"c", codec=codec))) is None
    assert look(memoryview(batch(b"a", codec=codec, value=None))) is None
    refusal = look(memoryview(batch(b"a", None, b"c", codec=codec)))
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD
    assert "record 1 has no key" in refusal.message


def test_what_does_not_read_back_is_refused() -> None:
    odd = batch(b"a", codec=1)
    odd[70:80] = bytes(10)
    odd[17:21] = crc32c(memoryview(odd)[CRC_START:]).to_bytes(4, "big")
    refusal = look(memoryview(odd))
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD and "gzip" in refusal.message


def test_decompression_is_bounded() -> None:
    bomb = memoryview(batch(b"a", codec=4, value=bytes(1 << 20)))
    assert len(bomb) < 1000
    assert look(bomb) is None
    refusal = look(bomb, unpacked_max=20_000)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_RECORD and "more than 20000" in refusal.message


def test_what_any_topic_refuses_is_left_to_admission() -> None:
    """A wrong CRC has a code of its own, and so on."""
    wrong = batch(None)
    wrong[20] ^= 1
    assert look(memoryview(wrong)) is None
    assert look(memoryview(batch(None))[:40]) is None
    assert look(memoryview(batch(None))[:-1]) is None
    assert look(memoryview(batch(None)), LogConfig(compact=True, max_message_bytes=10)) is None


@pytest.mark.parametrize("codec", range(5))
def test_the_records_without_a_key_are_named(codec: int) -> None:
    data = memoryview(batch(None, b"a", None, None, b"b", None, codec=codec))
    refusal = look(data)
    assert isinstance(refusal, RefusedRecords) and refusal.code == ErrorCode.INVALID_RECORD
    assert refusal.records == tuple((index, NO_KEY) for index in (0, 2, 3, 5))
    assert refusal.message.startswith("records 0, 2, 3 and others have no key;")
    some = look(data, limit=2)
    assert isinstance(some, RefusedRecords) and [index for index, _ in some.records] == [0, 2]
    none = look(data, limit=0)
    assert isinstance(none, RefusedRecords) and none.records == (), "refused all the same"


def test_wrong_times_in_the_same_batch_are_named_too_and_give_the_code() -> None:
    records = [
        Record(0, timestamp, key, b"v") for timestamp, key in ((5000, None), (5000, b"a"), (9000, b"b"), (1, None))
    ]
    config = LogConfig(compact=True, timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
    refusal = look(memoryview(build_batch(records)), config, now_ms=5000)
    assert isinstance(refusal, RefusedRecords) and refusal.code == ErrorCode.INVALID_TIMESTAMP
    assert refusal.records == (
        (0, NO_KEY), (2, "timestamp 9000 is not between 4000 and 6000"), (3, NO_KEY)
    )  # fmt: skip
