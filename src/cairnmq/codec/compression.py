"""Kafka's compression codecs by number: one table of (compress, decompress). Pure; packages load on first use.

Every decompressor takes a limit and never produces more than it: a kilobyte from the network may expand to gigabytes.
The limit also bounds the pieces (frames, blocks) of gzip, snappy and lz4: a megabyte may hold 100,000 empty ones.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from importlib import import_module
from struct import Struct as Layout
from types import ModuleType
from typing import TypeAlias

from cairnmq.types import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_WINDOW = 31  # zlib's number for "gzip wrapper, largest window"
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16  # magic, version, oldest compatible version
_BLOCK_SIZE = Layout(">i")
_CHUNK = 256 * 1024
_FED = 64 * 1024  # at a time: zlib copies what it leaves of it
_PIECE = 1024  # unpacking nothing takes as long as unpacking this

# Unpacks a view from a position on, at most so many bytes: these, how much of it is done, whether the frame ended.
_Step: TypeAlias = Callable[[memoryview, int, int], tuple[bytes, int, bool]]


class Undecodable(ValueError):
    """Bytes that are not what their header says; the text says which and why."""


class CodecMissing(RuntimeError):
    """The package for a codec is not installed."""


def compress(codec: int, data: Buffer) -> bytes:
    return _entry(codec)[0](data)


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """The original bytes; Undecodable if damaged or larger than `limit`."""
    try:
        return _entry(codec)[1](data, limit)
    except Undecodable as error:
        # The frames below hold what was unpacked so far, and would for as long as somebody has the error.
        raise error.with_traceback(None)  # noqa: B904 - it is the same error


def _entry(codec: int) -> tuple[Callable[[Buffer], bytes], Callable[[Buffer, int], bytes]]:
    if not 0 <= codec < len(_TABLE):
        raise Undecodable(f"compression codec {codec} is unknown; Kafka has 0 to {len(_TABLE) - 1}")
    return _TABLE[codec]


def _package(module: str, codec: int) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        name = CODEC_NAMES[codec]
        raise CodecMissing(f"{name} needs the package {module.partition('.')[0]}, which is not installed") from None


def _too_large(codec: int, limit: int) -> Undecodable:
    return Undecodable(f"{CODEC_NAMES[codec]} data expands to more than {limit} bytes")


def _pieces_max(limit: int) -> int:
    return 2 + limit // _PIECE


def _too_many(codec: int, limit: int) -> Undecodable:
    return Undecodable(f"{CODEC_NAMES[codec]} data has more than {_pieces_max(limit)} blocks for {limit} bytes")


def _damaged(codec: int, why: object) -> Undecodable:
    return Undecodable(f"{CODEC_NAMES[codec]} data is damaged: {why}")


def _none(data: Buffer) -> bytes:
    return bytes(data)


def _none_back(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise Undecodable(f"{len(data)} bytes of records are more than {limit}")
    return bytes(data)


def _gzip(data: Buffer) -> bytes:
    return gzip.compress(data, compresslevel=6, mtime=0)


def _gzip_back(data: Buffer, limit: int) -> bytes:
    def begin() -> _Step:
        member = zlib.decompressobj(_GZIP_WINDOW)

        def step(view: memoryview, position: int, most: int) -> tuple[bytes, int, bool]:
            fed = view[position : position + _FED]
            part = member.decompress(fed, most)
            left = member.unused_data if member.eof else member.unconsumed_tail  # at the end it may be in both
            return part, len(fed) - len(left), member.eof

        return step

    return _unframed(GZIP, data, limit, begin, zlib.error)


def _unframed(codec: int, data: Buffer, limit: int, begin: Callable[[], _Step], failure: type[Exception]) -> bytes:
    """What all frames hold: Java reads concatenated ones of gzip, so they occur."""
    view = memoryview(data)
    parts: list[bytes] = []
    position, room, pieces = 0, limit, 0
    while True:  # one turn per frame
        step = begin()
        ended = False
        while not ended:
            try:
                part, taken, ended = step(view, position, min(_CHUNK, room + 1))
            except failure as error:
                raise _damaged(codec, error) from None
            position += taken
            room -= len(part)
            if room < 0:
                raise _too_large(codec, limit)
            if not (part or taken or ended):
                raise _damaged(codec, "data is truncated")
            parts.append(part)
        if position == len(view):
            return b"".join(parts)
        pieces += 1
        if pieces >= _pieces_max(limit):
            raise _too_many(codec, limit)


def _snappy(data: Buffer) -> bytes:
    # Raw, as librdkafka writes it; every client reads this form, and it needs no 32 KiB blocks.
    return bytes(_package("cramjam", SNAPPY).snappy.compress_raw(data))


def _snappy_back(data: Buffer, limit: int) -> bytes:
    cramjam = _package("cramjam", SNAPPY)
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(cramjam, data, limit, limit)
    parts: list[bytes] = []
    view = memoryview(data)
    position, room, pieces = 0, limit, _pieces_max(limit)
    while position < len(view):
        pieces -= 1
        if pieces < 0:
            raise _too_many(SNAPPY, limit)
        if position + _BLOCK_SIZE.size > len(view):
            raise _damaged(SNAPPY, "a block header is truncated")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        if size < 0 and view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += _XERIAL_HEADER_SIZE  # Java reads concatenated streams too
            if position > len(view):
                raise _damaged(SNAPPY, "the frame header is truncated")
            continue
        position += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - position:
            raise _damaged(SNAPPY, f"a block has length {size}, but only {len(view) - position} bytes are left")
        parts.append(_snappy_block(cramjam, view[position : position + size], room, limit))
        room -= len(parts[-1])
        position += size
    return b"".join(parts)


def _snappy_block(cramjam: ModuleType, data: Buffer, room: int, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(data) > room:
            raise _too_large(SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise _damaged(SNAPPY, error) from None


def _lz4(data: Buffer) -> bytes:
    return bytes(_package("lz4.frame", LZ4).compress(data, store_size=False))


def _lz4_back(data: Buffer, limit: int) -> bytes:
    lz4 = _package("lz4.frame", LZ4)
    context = lz4.create_decompression_context()  # ready for the next frame whenever one has ended

    def step(view: memoryview, position: int, most: int) -> tuple[bytes, int, bool]:
        unpacked: tuple[bytes, int, bool] = lz4.decompress_chunk(context, view[position:], max_length=most)
        return unpacked

    return _unframed(LZ4, data, limit, lambda: step, RuntimeError)


def _zstd(data: Buffer) -> bytes:
    return bytes(_package("zstandard", ZSTD).ZstdCompressor(level=3).compress(data))


def _zstd_back(data: Buffer, limit: int) -> bytes:
    zstandard = _package("zstandard", ZSTD)
    parts: list[bytes] = []
    room = limit
    try:
        # read_across_frames: without it what follows the first frame would be lost silently.
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while part := reader.read(min(_CHUNK, room + 1)):
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise _too_large(ZSTD, limit)
        # The reader takes a cut frame for its end. Frames without a stored size are caught by the record count.
        if limit - room < zstandard.frame_content_size(data):
            raise _damaged(ZSTD, "data is truncated")
    except zstandard.ZstdError as error:
        raise _damaged(ZSTD, error) from None
    return b"".join(parts)


_TABLE: tuple[tuple[Callable[[Buffer], bytes], Callable[[Buffer, int], bytes]], ...] = (
    (_none, _none_back),
    (_gzip, _gzip_back),
    (_snappy, _snappy_back),
    (_lz4, _lz4_back),
    (_zstd, _zstd_back),
)
