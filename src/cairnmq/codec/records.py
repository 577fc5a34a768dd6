"""The records inside a RecordBatch v2: read one by one, or built into a batch. Pure.

The broker stores and forwards batches without looking inside, so its hot path never comes here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.codec.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    offset_and_size,
    read_header,
)
from cairnmq.codec.compression import NONE, Undecodable, compress, decompress
from cairnmq.codec.crc32c import crc32c
from cairnmq.types import Buffer

Headers = tuple[tuple[str, bytes | None], ...]

UNPACKED_BYTES_MAX = 256 * 1024 * 1024
_MAGIC_AT = 16


class Record(Struct, frozen=True, gc=False):
    """One message. `control` marks a transaction marker, which is not data."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    control: bool = False


def iter_batches(buffer: Buffer) -> Iterator[memoryview]:
    """The whole batches of a fetch answer, in order; a cut last one is left out, as Kafka's contract allows."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        offset, size = offset_and_size(view, position)
        if size < HEADER_SIZE:
            raise Undecodable(f"batch at offset {offset} has length {size}; a header alone has {HEADER_SIZE}")
        if size > len(view) - position:
            return
        if view[position + _MAGIC_AT] != MAGIC:
            raise _old_format(offset, view[position + _MAGIC_AT])
        yield view[position : position + size]
        position += size


def decode_batch(buffer: Buffer, *, limit: int = UNPACKED_BYTES_MAX, check_crc: bool = True) -> Iterator[Record]:
    """The records of one batch, decompressed. With LogAppendTime all carry the batch's time."""
    header, body = open_batch(buffer, limit=limit, check_crc=check_crc)
    yield from decode_records(header, body)


def open_batch(
    buffer: Buffer, *, limit: int = UNPACKED_BYTES_MAX, check_crc: bool = True
) -> tuple[BatchHeader, Buffer]:
    """Header and decompressed records of one batch; what was not compressed is not copied."""
    if len(buffer) < HEADER_SIZE:
        raise Undecodable(f"{len(buffer)} bytes are not a batch; a header alone has {HEADER_SIZE}")
    header = read_header(buffer)
    if header.magic != MAGIC:
        raise _old_format(header.base_offset, header.magic)
    if not HEADER_SIZE <= header.size <= len(buffer):
        raise Undecodable(
            f"batch at offset {header.base_offset} has length {header.size}, but only {len(buffer)} bytes are there"
        )
    view = memoryview(buffer)[: header.size]
    if check_crc and crc32c(view[CRC_START:]) != header.crc:
        raise Undecodable(f"batch at offset {header.base_offset} is damaged: its CRC does not match")
    body = view[HEADER_SIZE:]
    codec = header.attributes & CODEC_MASK
    if codec == NONE and len(body) <= limit:
        return header, body
    try:
        return header, decompress(codec, body, limit)
    except Undecodable as error:
        raise Undecodable(f"batch at offset {header.base_offset}: {error}") from None


def decode_records(header: BatchHeader, body: Buffer) -> Iterator[Record]:
    """The records of a batch that `open_batch` has opened."""
    try:
        yield from _decode_records(header, bytes(body))
    except Undecodable as error:
        raise Undecodable(f"batch at offset {header.base_offset}: {error}") from None
    except IndexError:
        raise Undecodable(f"batch at offset {header.base_offset}: truncated record data") from None


def last_records(buffer: Buffer, count: int, limit: int = UNPACKED_BYTES_MAX) -> list[Record]:
    """At most `count`, from the end of a batch that was checked already: those before are passed over, so that very
    many small ones cost neither their time nor their memory."""
    header, packed = open_batch(buffer, limit=limit, check_crc=False)
    body = bytes(packed)
    starts: deque[int] = deque(maxlen=count)
    position = 0
    try:
        for _ in range(header.count):
            starts.append(position)
            size, position = read_varint(body, position)
            if size < 0:
                raise Undecodable(f"batch at offset {header.base_offset}: a record has length {size}")
            position += size
    except IndexError:
        raise Undecodable(f"batch at offset {header.base_offset}: truncated record data") from None
    return list(decode_records(replace(header, count=len(starts)), body[starts[0] :])) if starts else []


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    timestamp_type: int = 0,
    transactional: bool = False,
) -> bytes:
    """A batch as a producer sends it: offsets count on from `base_offset`, whatever the records say."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        append_record(body, delta, base_timestamp, record)
    return sealed_batch(
        body,
        len(records),
        base_timestamp,
        max(record.timestamp for record in records),
        codec=codec,
        producer=(producer_id, producer_epoch, base_sequence),
        base_offset=base_offset,
        flags=(APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if records[0].control else 0),
    )


def sealed_batch(
    body: Buffer,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    flags: int = 0,
) -> bytes:
    """The batch of records that `append_record` has made, one behind the other; `producer`: id, epoch, sequence."""
    packed = body if codec == NONE else compress(codec, body)
    fields = (codec | flags, count - 1, base_timestamp, max_timestamp, *producer, count)
    start = (base_offset, HEADER_SIZE + len(packed) - LENGTH_OVERHEAD, -1, MAGIC)
    unsigned = HEADER.pack(*start, 0, *fields)
    checksum = crc32c(packed, crc32c(unsigned[CRC_START:]))
    return b"".join((HEADER.pack(*start, checksum, *fields), packed))


def rebuilt_batch(
    header: BatchHeader, body: bytes, count: int, *, max_timestamp: int, delete_horizon: int | None = None
) -> bytes:
    """The batch with only these of its records, with their offsets, packed as before.

    `delete_horizon` (KIP-534) becomes the base timestamp; what records say relative to that changes with it.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        body = _shifted(body, count, base_timestamp - delete_horizon)
        base_timestamp = delete_horizon
    packed = compress(attributes & CODEC_MASK, body)
    batch = bytearray(HEADER_SIZE + len(packed))
    batch[HEADER_SIZE:] = packed
    start = (header.base_offset, len(batch) - LENGTH_OVERHEAD, header.leader_epoch, MAGIC)
    fields = (attributes, header.last_offset_delta, base_timestamp, max_timestamp)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence, count)
    HEADER.pack_into(batch, 0, *start, 0, *fields, *producer)
    HEADER.pack_into(batch, 0, *start, crc32c(memoryview(batch)[CRC_START:]), *fields, *producer)
    return bytes(batch)


def wrapped(timestamp: int) -> int:
    """As a number of 64 bits: producers may write any delta, and Kafka's clients add it up like this."""
    return (timestamp + 2**63) % 2**64 - 2**63


def _shifted(body: bytes, count: int, by: int) -> bytes:
    """Records with their relative timestamps moved."""
    moved = bytearray()
    position = 0
    for _ in range(count):
        size, position = read_varint(body, position)
        end = position + size
        if not position < end <= len(body):
            raise Undecodable(f"a record has length {size}, but only {len(body) - position} bytes are left")
        delta, rest = read_varint(body, position + 1)
        fields = bytearray(body[position : position + 1])
        _put_varint(fields, wrapped(delta + by))
        fields += body[rest:end]
        _put_varint(moved, len(fields))
        moved += fields
        position = end
    return bytes(moved)


def _old_format(offset: int, magic: int) -> Undecodable:
    return Undecodable(
        f"batch at offset {offset} has format {magic}; only format {MAGIC} (Kafka 0.11 and later) is read"
    )


def _decode_records(header: BatchHeader, body: bytes) -> Iterator[Record]:
    append_time = header.max_timestamp if header.attributes & APPEND_TIME_BIT else None
    control = bool(header.attributes & CONTROL_BIT)
    position = 0
    for _ in range(header.count):
        size, position = read_varint(body, position)
        end = position + size
        if size < 0 or end > len(body):
            raise Undecodable(f"a record has length {size}, but only {len(body) - position} bytes are left")
        position += 1  # record attributes: unused since Kafka 0.11
        timestamp, position = read_varint(body, position)
        delta, position = read_varint(body, position)
        key, position = _bytes(body, position, end)
        value, position = _bytes(body, position, end)
        count, position = read_varint(body, position)
        headers: Headers = ()
        if count:
            headers, position = _headers(body, position, end, count)
        if position != end:
            raise Undecodable(f"a record of {size} bytes has fields of {size + position - end} bytes")
        yield Record(
            header.base_offset + delta,
            header.base_timestamp + timestamp if append_time is None else append_time,
            key,
            value,
            headers,
            control,
        )
    if position != len(body):
        raise Undecodable(f"{len(body) - position} bytes follow the last of its {header.count} records")


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
    byte = body[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while True:
        byte = body[position]
        position += 1
        if shift == 63 and byte > 1:
            raise Undecodable("a number has more than 64 bits")
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = body[position]
    if byte < 0x80:
        size = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        size, position = read_varint(body, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise Undecodable(f"a field has length {size}, but only {end - position} bytes of its record are left")
    return body[position:stop], stop


def _headers(body: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= (end - position) // 2:  # the smallest header has two bytes
        raise Undecodable(f"a record has {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _bytes(body, position, end)
        if key is None:
            raise Undecodable("a header has no name")
        value, position = _bytes(body, position, end)
        # Not all writers keep names UTF-8; surrogates bring such a name through unchanged.
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def append_record(body: bytearray, delta: int, base_timestamp: int, record: Record) -> None:
    """Adds a record as batches hold it, `delta` places behind the first; its own offset does not count."""
    fields = bytearray(1)
    _put_varint(fields, record.timestamp - base_timestamp)
    _put_varint(fields, delta)
    _put_bytes(fields, record.key)
    _put_bytes(fields, record.value)
    _put_varint(fields, len(record.headers))
    for name, value in record.headers:
        _put_bytes(fields, name.encode("utf-8", "surrogateescape"))
        _put_bytes(fields, value)
    _put_varint(body, len(fields))
    body += fields


def _put_varint(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of -1
        return
    _put_varint(out, len(data))
    out += data
