"""A batch that is refused because of some of its records, and which (KIP-467). Pure."""

from __future__ import annotations

from cairnmq.codec.batch import CODEC_MASK, HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header
from cairnmq.codec.compression import decompress
from cairnmq.errors import Refusal
from cairnmq.kernels import pick
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches import key_map
from cairnmq.types import Buffer

misdated = pick(key_map.misdated)

NAMED_MAX = 500  # in one answer: a small batch can unpack to millions of records, and many may come at once


class RefusedRecords(Refusal, frozen=True, gc=False):
    """`records`: the place in the batch of each record that is wrong, and what is wrong with it."""

    records: tuple[tuple[int, str], ...] = ()


def read_body(batch: memoryview, unpacked_max: int) -> Buffer:
    """The records of a batch, unpacked; raises Undecodable or CodecMissing."""
    codec = read_header(batch).attributes & CODEC_MASK
    body = batch[HEADER_SIZE:]
    return decompress(codec, body, unpacked_max) if codec else body


def wrong_times(body: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, limit: int) -> list[tuple[int, str]]:
    """Records outside of the time that a topic takes, counted from 0, and a sentence for each; raises Undecodable."""
    if config.append_time or limit <= 0:
        return []
    low, high = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    base = header.base_timestamp
    deltas = _int64(low - base), _int64(high - base), _int64(NO_TIMESTAMP - base)
    found = misdated(body, header.count, header.last_offset_delta, *deltas, limit)
    return [(index, f"timestamp {base + delta} is not between {low} and {high}") for index, delta in found]


def _int64(number: int) -> int:
    return max(-(1 << 63), min(number, (1 << 63) - 1))
