"""Every byte of a segment file, batch by batch with CRC: what dump prints and verify checks. Never raises on bad bytes.

The hot paths walk headers only (queue_segment.walk); this is the slow, complete way.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cairnmq.codec.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    offset_and_size,
    read_header,
)
from cairnmq.codec.crc32c import crc32c
from cairnmq.storage.files.disk import File

WINDOW_BYTES = 4 << 20
_MAGIC_AT = 16
_OLD_SIZE_MIN = 26  # offset, length, CRC, magic, attributes, no key, no value


class StoredBatch(Struct, frozen=True, gc=False):
    """A batch in a segment file. `data` is only good until the next one is asked for, and empty if the batch is larger
    than a window and its CRC is wrong: then its length may be, too."""

    position: int
    header: BatchHeader
    data: memoryview
    crc_ok: bool


class NoBatch(Struct, frozen=True, gc=False):
    """Where the batches end although the file does not; nothing behind can be told apart."""

    position: int
    why: str
    is_old_format: bool = False  # a message of Kafka before 0.11


def scan_batches(file: File) -> Iterator[StoredBatch | NoBatch]:
    """All batches in order; a NoBatch, if any, comes last."""
    size = file.size()
    position = start = 0
    window = memoryview(b"")
    while position < size:
        if position - start + HEADER_SIZE > len(window):
            start, window = position, memoryview(file.read(position, WINDOW_BYTES))
        if len(window) - (position - start) < HEADER_SIZE:
            rest = window[position - start :]
            left = f"{len(rest)} bytes are left, a batch header has {HEADER_SIZE}"
            yield NoBatch(position, left, _is_old_format(rest, len(rest)))
            return
        header = read_header(window, position - start)
        why = _nonsense(header, size - position)
        if why is not None:
            yield NoBatch(position, why, _is_old_format(window[position - start :], size - position))
            return
        if position - start + header.size > len(window):
            if header.size > WINDOW_BYTES and not _is_sound(file, position, header):
                yield StoredBatch(position, header, memoryview(b""), False)
                position += header.size
                continue
            start, window = position, memoryview(file.read(position, max(header.size, WINDOW_BYTES)))
        data = window[position - start : position - start + header.size]
        yield StoredBatch(position, header, data, crc32c(data[CRC_START:]) == header.crc)
        position += header.size


def _is_sound(file: File, position: int, header: BatchHeader) -> bool:
    """By its CRC, piece by piece."""
    at, end, crc = position + CRC_START, position + header.size, 0
    while at < end and (piece := file.read(at, min(WINDOW_BYTES, end - at))):
        crc = crc32c(piece, crc)
        at += len(piece)
    return at == end and crc == header.crc


def _nonsense(header: BatchHeader, room: int) -> str | None:
    if header.magic != MAGIC:
        return f"record format {header.magic} where {MAGIC} is expected"
    if header.length + LENGTH_OVERHEAD < HEADER_SIZE:
        return f"a batch length of {header.length}"
    if header.size > room:
        return f"a batch of {header.size} bytes where {room} are left"
    if header.last_offset_delta < 0 or header.base_offset < 0:
        return f"base offset {header.base_offset}, last offset delta {header.last_offset_delta}"
    return None


def _is_old_format(view: memoryview, room: int) -> bool:
    """Offset, length and magic stood at the same places before Kafka 0.11; only messages were smaller."""
    if len(view) < _OLD_SIZE_MIN or view[_MAGIC_AT] >= MAGIC:
        return False
    return _OLD_SIZE_MIN <= offset_and_size(view, 0)[1] <= room
