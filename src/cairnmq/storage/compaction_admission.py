"""May this batch go into a compacted topic? Every record needs a key, so this looks inside, with a limit. Pure."""

from __future__ import annotations

from cairnmq.codec.batch import CODEC_MASK, CONTROL_BIT, CRC_START, HEADER_SIZE, MAGIC, read_header
from cairnmq.codec.compression import CodecMissing, Undecodable, decompress
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.kernels import pick
from cairnmq.settings.topic import LogConfig
from cairnmq.storage import key_map

keyless = pick(key_map.keyless)

AT_ONCE_BYTES = 1 << 20  # unpacked in a millisecond or two


def refuse_keyless(batch: memoryview, config: LogConfig, unpacked_max: int) -> Refusal | None:
    """`batch` is what a producer sent. What any topic would refuse is left to admission, which says it better.

    With more than `AT_ONCE_BYTES` it may take long.
    """
    if len(batch) < HEADER_SIZE or len(batch) > config.max_message_bytes:
        return None
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch) or header.attributes & CONTROL_BIT:
        return None
    if header.count <= 0 or header.count != header.last_offset_delta + 1 or crc32c(batch[CRC_START:]) != header.crc:
        return None
    body: bytes | memoryview = batch[HEADER_SIZE:]
    try:
        if codec := header.attributes & CODEC_MASK:
            body = decompress(codec, body, unpacked_max)
        index = keyless(body, header.count, header.last_offset_delta)
    except Undecodable as error:
        return Refusal(ErrorCode.INVALID_RECORD, f"a compacted topic looks into batches, and this one: {error}")
    except CodecMissing as error:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    if index < 0:
        return None
    return Refusal(
        ErrorCode.INVALID_RECORD, f"record {index} has no key; a compacted topic takes only records with keys"
    )
