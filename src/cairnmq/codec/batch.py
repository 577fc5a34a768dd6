"""RecordBatch v2 as the broker sees it: the 61-byte header, read and patched in place; records stay opaque.

Only what lies outside the batch's CRC (base offset, leader epoch) is patched on the normal path. LogAppendTime
changes bytes below the CRC, so that one patch computes it anew.
"""

from __future__ import annotations

from struct import Struct as Layout

from msgspec import Struct

from cairnmq.codec.crc32c import crc32c
from cairnmq.types import Buffer

# baseOffset batchLength leaderEpoch magic crc attributes lastOffsetDelta baseTimestamp maxTimestamp
# producerId producerEpoch baseSequence recordsCount
HEADER = Layout(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_OVERHEAD = 12  # batchLength counts the bytes after itself
CRC_START = 21  # the CRC covers everything from the attributes on
MAGIC = 2
NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1

EMPTY_DELTA_MAX = 0x7FFFFFFF - 1  # of an empty batch, so that a segment can hold any of them

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40  # compaction has set one (KIP-534); it stands in the base timestamp

_OFFSET_LENGTH = Layout(">qi")
_OFFSET = Layout(">q")
_EPOCH = Layout(">i")
_CRC = Layout(">I")
_ATTRIBUTES = Layout(">h")
_COUNT = Layout(">i")


class BatchHeader(Struct, frozen=True, gc=False):
    """The header's fields by name, for code that is not counting nanoseconds."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def offset_and_size(buffer: Buffer, position: int) -> tuple[int, int]:
    """Base offset and whole size of the batch at `position` (12 bytes must be there)."""
    offset, length = _OFFSET_LENGTH.unpack_from(buffer, position)
    return offset, length + LENGTH_OVERHEAD


def sound_batches(data: Buffer, max_bytes: int, offset: int, limit: int, epoch: int) -> tuple[int, int, bool, int]:
    """How many bytes of `data` are whole sound batches below offset `limit`, the offset behind them, whether a damaged
    one follows, and the size of one that is cut off, as its header says it (0: unknown).

    The first holds `offset`, each goes on where the one before ends, all have this leader epoch (any, if negative)
    and the right checksum: so every bit of a batch is looked at. Pure twin of _batch.pyx.
    """
    at, room = 0, min(len(data), max_bytes)
    next_offset = offset
    view = memoryview(data)
    while at + HEADER_SIZE <= room and next_offset < limit:  # behind the limit a crash may have left anything
        base, length, leader, magic, crc, _, delta, _, _, _, _, _, _ = HEADER.unpack_from(data, at)
        size = length + LENGTH_OVERHEAD
        if (
            magic != MAGIC
            or size < HEADER_SIZE
            or (base != next_offset if at else not base <= offset <= base + delta)
            or (0 <= epoch != leader)
        ):
            return at, next_offset, True, 0
        if at + size > room:
            return at, next_offset, False, size
        if crc32c(view[at + CRC_START : at + size]) != crc:
            return at, next_offset, True, 0
        next_offset = base + delta + 1
        at += size
    return at, next_offset, False, 0


def empty_batch(first: int, last: int, timestamp: int) -> bytearray:
    """A header without records that stands for offsets whose records are gone. Kafka's compaction leaves such."""
    batch = bytearray(HEADER_SIZE)
    fields = (0, last - first, timestamp, timestamp, -1, -1, -1, 0)
    HEADER.pack_into(batch, 0, first, HEADER_SIZE - LENGTH_OVERHEAD, -1, MAGIC, 0, *fields)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def only_empty(batches: Buffer) -> bool:
    """Whether whole batches are all without records: then each is a header, and no more."""
    counts = range(HEADER_SIZE - _COUNT.size, len(batches), HEADER_SIZE)
    return len(batches) % HEADER_SIZE == 0 and not any(_COUNT.unpack_from(batches, at)[0] for at in counts)


def hollow_batch(header: BatchHeader, timestamp: int) -> bytearray:
    """A batch without its records: offsets, producer and sequence stay, as Kafka's compaction leaves it."""
    batch = bytearray(HEADER_SIZE)
    kept = header.attributes & (APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    fields = (kept, header.last_offset_delta, timestamp, timestamp)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence, 0)
    start = (header.base_offset, HEADER_SIZE - LENGTH_OVERHEAD, header.leader_epoch, MAGIC)
    HEADER.pack_into(batch, 0, *start, 0, *fields, *producer)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def stored_crc(buffer: Buffer, position: int = 0) -> int:
    crc: int = _CRC.unpack_from(buffer, position + 17)[0]
    return crc


def set_offset_and_epoch(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    _OFFSET.pack_into(buffer, 0, base_offset)
    _EPOCH.pack_into(buffer, 12, leader_epoch)


def set_append_time(buffer: bytearray | memoryview, attributes: int, now_ms: int) -> None:
    """Kafka's LogAppendTime: bit 3 and the maximum timestamp, which every reader then uses for all records."""
    _ATTRIBUTES.pack_into(buffer, 21, attributes | APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, 35, now_ms)
    _CRC.pack_into(buffer, 17, crc32c(memoryview(buffer)[CRC_START:]))
