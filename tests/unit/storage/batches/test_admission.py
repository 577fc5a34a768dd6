"""What a producer may not send."""

from __future__ import annotations

import pytest

from cairnmq.codec.batch import CONTROL_BIT, CRC_START, TRANSACTIONAL_BIT
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.kernels import pick
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.admission import admit

NOW = 1_000_000
DECIDERS = (admit, pick(admit))  # the pure one, and the compiled one if there is one


def batch(**fields: int) -> bytearray:
    records = [
        Record(offset=0, timestamp=NOW - 10, key=None, value=b"v"),
        Record(offset=1, timestamp=NOW, key=None, value=None),
    ]
    return bytearray(build_batch(records, **fields))


def patched(at: int, data: bytes) -> bytearray:
    """A batch with some bytes changed and its CRC made right again."""
    changed = batch()
    changed[at : at + len(data)] = data
    changed[17:21] = crc32c(memoryview(changed)[CRC_START:]).to_bytes(4, "big")
    return changed


def verdict(data: bytearray, config: LogConfig | None = None, now_ms: int = NOW) -> ErrorCode | None:
    answers = [decide(memoryview(data), config or LogConfig(), now_ms) for decide in DECIDERS]
    assert all(answer == answers[0] for answer in answers)
    return answers[0].code if isinstance(answers[0], Refusal) else None


def test_a_good_batch() -> None:
    assert verdict(batch()) is None
    assert verdict(batch(producer_id=5, producer_epoch=0, base_sequence=0)) is None
    assert verdict(batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)) is None
    assert admit(memoryview(batch(producer_id=5, producer_epoch=3, base_sequence=7)), LogConfig(), NOW) == (
        0, NOW, 5, 3, 7, 2,
    )  # fmt: skip


CASES = {
    "no header": (batch()[:60], ErrorCode.INVALID_RECORD),
    "old format": (patched(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "two batches": (batch() + batch(), ErrorCode.INVALID_RECORD),
    "cut": (batch()[:-1], ErrorCode.INVALID_RECORD),
    "damaged": (batch()[:-1] + b"\x07", ErrorCode.CORRUPT_MESSAGE),
    "no records": (patched(57, bytes(4)), ErrorCode.INVALID_RECORD),
    "count and delta differ": (patched(57, b"\0\0\0\7"), ErrorCode.INVALID_RECORD),
    "control": (patched(21, CONTROL_BIT.to_bytes(2, "big")), ErrorCode.INVALID_RECORD),
    "transactional without a producer": (patched(21, TRANSACTIONAL_BIT.to_bytes(2, "big")), ErrorCode.INVALID_RECORD),
    "transactional without a sequence": (
        batch(producer_id=5, producer_epoch=0, base_sequence=-1, transactional=True),
        ErrorCode.INVALID_RECORD,
    ),
    "no sequence": (batch(producer_id=5, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("data", "code"), CASES.values(), ids=CASES)
def test_refused(data: bytearray, code: ErrorCode) -> None:
    assert verdict(data) == code


def test_sizes() -> None:
    size = len(batch())
    assert verdict(batch(), LogConfig(max_message_bytes=size)) is None
    assert verdict(batch(), LogConfig(max_message_bytes=size - 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert verdict(batch(), LogConfig(segment_bytes=size - 1)) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_times() -> None:
    config = LogConfig(timestamp_after_max_ms=100, timestamp_before_max_ms=200)
    assert verdict(batch(), config, NOW - 100) is None
    assert verdict(batch(), config, NOW - 101) == ErrorCode.INVALID_TIMESTAMP
    assert verdict(batch(), config, NOW + 190) is None
    assert verdict(batch(), config, NOW + 191) == ErrorCode.INVALID_TIMESTAMP
    assert verdict(batch(), LogConfig(append_time=True, timestamp_after_max_ms=0), 0) is None
