"""May this batch go into a compacted topic? Every record needs a key, so this looks inside, with a limit. Pure."""

from __future__ import annotations

from cairnmq.codec.batch import CONTROL_BIT, CRC_START, HEADER_SIZE, MAGIC, read_header
from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.kernels import pick
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches import key_map
from cairnmq.storage.batches.record_errors import RefusedRecords, read_body, wrong_times

keyless = pick(key_map.keyless)

AT_ONCE_BYTES = 1 << 20  # unpacked in a millisecond or two
NO_KEY = "it has no key; a compacted topic accepts only records with keys"
SHOWN = 3


def refuse_keyless(
    batch: memoryview, config: LogConfig, now_ms: int, *, unpacked_max: int, limit: int
) -> Refusal | None:
    """`batch` is what a producer sent. What any topic would refuse is left to admission, which says it better.

    With more than `AT_ONCE_BYTES` unpacked it may take long. At most `limit` records are named.
    """
    if len(batch) < HEADER_SIZE or len(batch) > config.max_message_bytes:
        return None
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch) or header.attributes & CONTROL_BIT:
        return None
    if header.count <= 0 or header.count != header.last_offset_delta + 1 or crc32c(batch[CRC_START:]) != header.crc:
        return None
    try:
        body = read_body(batch, unpacked_max)
        indexes = keyless(body, header.count, header.last_offset_delta, max(limit, 1))
    except Undecodable as error:
        return Refusal(ErrorCode.INVALID_RECORD, f"batch for a compacted topic cannot be decoded: {error}")
    except CodecMissing as error:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    if not indexes:
        return None
    shown = ", ".join(map(str, indexes[:SHOWN])) + (" and others" if len(indexes) > SHOWN else "")
    what = f"record {shown} has no key" if len(indexes) == 1 else f"records {shown} have no key"
    named = dict.fromkeys(indexes[:limit], NO_KEY)
    late = [(index, why) for index, why in wrong_times(body, header, config, now_ms, limit) if index not in named]
    return RefusedRecords(
        ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD,  # as Kafka has it
        f"{what}; a compacted topic accepts only records with keys",
        tuple(sorted([*named.items(), *late])[:limit]),
    )
