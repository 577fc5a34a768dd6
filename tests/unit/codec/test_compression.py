"""Codecs: what they give back, what they refuse, and that no input makes them expand beyond the limit."""

from __future__ import annotations

import gzip
import struct
import sys
import tracemalloc
import zlib
from random import Random
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

from cairnmq.codec.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CodecMissing,
    Undecodable,
    compress,
    decompress,
)

ALL = range(len(CODEC_NAMES))
PACKED = (GZIP, SNAPPY, LZ4, ZSTD)
TEXT = b"many queues, few journals; " * 4000


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "byte", "text"])
def test_gives_back_what_went_in(codec: int, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_text_gets_smaller(codec: int) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) // 4


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
def test_more_than_the_limit_is_refused(codec: int) -> None:
    packed = compress(codec, bytes(8_000_000))
    with pytest.raises(Undecodable, match="more than 7999999"):
        decompress(codec, packed, 7_999_999)


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_refused(codec: int) -> None:
    with pytest.raises(Undecodable, match="damaged"):
        decompress(codec, b"\x07this was never compressed" * 3, 1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_a_cut_tail_is_refused(codec: int) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(Undecodable, match="damaged"):
        decompress(codec, packed[: len(packed) // 2], 1 << 20)


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(Undecodable, match="codec 5 is unknown"):
        decompress(5, b"", 10)
    with pytest.raises(Undecodable, match="codec -1 is unknown"):
        compress(-1, b"")


def xerial(*blocks: bytes) -> bytes:
    frame = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        frame += struct.pack(">i", len(packed)) + packed
    return frame


def test_snappy_reads_the_frames_that_java_writes() -> None:
    assert decompress(SNAPPY, xerial(TEXT[:32768], TEXT[32768:65536], b"end"), 1 << 20) == TEXT[:65536] + b"end"
    assert decompress(SNAPPY, xerial(), 0) == b""


def test_snappy_reads_streams_of_java_one_behind_the_other() -> None:
    packed = xerial(b"one ", b"two ") + xerial() + xerial(b"three")
    assert decompress(SNAPPY, packed, 1 << 20) == b"one two three"
    assert decompress(SNAPPY, xerial(b"one") + xerial(b"two"), 2048) == b"onetwo"
    with pytest.raises(Undecodable, match="more than 1025 blocks"):
        decompress(SNAPPY, xerial() * 1026, (1 << 20) - 1)
    with pytest.raises(Undecodable, match="the frame header is truncated"):
        decompress(SNAPPY, packed + xerial()[:-1], 1 << 20)


def test_the_limit_counts_all_blocks_of_a_snappy_frame() -> None:
    with pytest.raises(Undecodable, match="more than 1999"):
        decompress(SNAPPY, xerial(bytes(1000), bytes(1000)), 1999)
    assert decompress(SNAPPY, xerial(bytes(1000), bytes(1000)), 2000) == bytes(2000)


@pytest.mark.parametrize("cut", [10, 17, 25])
def test_a_cut_snappy_frame_is_refused(cut: int) -> None:
    with pytest.raises(Undecodable, match="damaged"):
        decompress(SNAPPY, xerial(TEXT)[:cut], 1 << 20)


def test_a_snappy_block_longer_than_its_frame_is_refused() -> None:
    frame = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 0x7FFFFFFF)
    with pytest.raises(Undecodable, match="has length 2147483647, but only 0 bytes are left"):
        decompress(SNAPPY, frame, 1 << 20)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (GZIP, gzip.compress(b"one ") + gzip.compress(b"two")),
        (LZ4, lz4.frame.compress(b"one ") + lz4.frame.compress(b"two")),
        (ZSTD, zstandard.ZstdCompressor().compress(b"one ") + zstandard.ZstdCompressor().compress(b"two")),
    ],
    ids=["gzip", "lz4", "zstd"],
)
def test_concatenated_frames_are_read_to_the_end(codec: int, packed: bytes) -> None:
    assert decompress(codec, packed, 7) == b"one two"
    with pytest.raises(Undecodable, match="more than 6"):
        decompress(codec, packed, 6)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (GZIP, gzip.compress(b"", mtime=0) * 1026),
        (LZ4, lz4.frame.compress(b"") * 1026),
        (SNAPPY, xerial(*[b""] * 1025)),
    ],
    ids=["gzip", "lz4", "snappy"],
)
def test_pieces_that_hold_nothing_count_as_a_kilobyte_each(codec: int, packed: bytes) -> None:
    """100,000 of them fit into a batch, and each takes its time."""
    assert decompress(codec, packed, 1 << 20) == b""
    with pytest.raises(Undecodable, match="has more than 1025 blocks for 1048575 bytes"):
        decompress(codec, packed, (1 << 20) - 1)


def test_members_of_gzip_are_not_copied_once_for_each_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    left_over = 0

    class Counting:
        def __init__(self, member: Any) -> None:
            self.member = member

        def __getattr__(self, name: str) -> Any:
            nonlocal left_over
            value = getattr(self.member, name)
            if name in ("unused_data", "unconsumed_tail"):
                left_over += len(value)
            return value

    begin = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda window: Counting(begin(window)))
    random = Random(7).randbytes(4 << 20)
    packed = gzip.compress(b"", mtime=0) * 100 + gzip.compress(random, mtime=0)
    assert decompress(GZIP, packed, len(random)) == random
    assert left_over < 100 * (64 << 10) + len(packed)


@pytest.mark.parametrize("size", [100, 70_000, 300_000, 2_000_000])
@pytest.mark.parametrize("codec", [GZIP, LZ4], ids=["gzip", "lz4"])
def test_frames_that_end_anywhere_are_read(codec: int, size: int) -> None:
    random = Random(size)
    parts = [random.randbytes(size), bytes(size), b"", random.randbytes(size // 2) + bytes(size), b"end"]
    packed = b"".join(compress(codec, part) for part in parts)
    assert decompress(codec, packed, max(4096, sum(map(len, parts)))) == b"".join(parts)
    with pytest.raises(Undecodable, match="data is truncated"):
        decompress(codec, packed[:-1], 1 << 23)


def test_zstd_without_a_stored_size_obeys_the_limit() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(3_000_000))
    assert decompress(ZSTD, packed, 3_000_000) == bytes(3_000_000)
    with pytest.raises(Undecodable, match="more than 2999999"):
        decompress(ZSTD, packed, 2_999_999)


@pytest.mark.parametrize(("codec", "module"), [(SNAPPY, "cramjam"), (LZ4, "lz4.frame"), (ZSTD, "zstandard")])
def test_a_missing_package_says_what_to_install(codec: int, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(codec, TEXT)
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: compress(codec, TEXT), lambda: decompress(codec, packed, 1 << 20)):
        with pytest.raises(CodecMissing, match=r"which is not installed"):
            call()
    assert decompress(NONE, compress(NONE, b"still works"), 20) == b"still works"


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_a_bomb_costs_no_more_than_the_limit_and_its_error_nothing(codec: int) -> None:
    """Found by hostile clients: frames that an error refers to kept all that was unpacked."""
    limit = 4 << 20
    bomb = compress(codec, bytes(20 << 20))
    decompress(codec, compress(codec, b"x"), limit)  # loads the package
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable, match="expands to more") as caught:
            decompress(codec, bomb, limit)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit + (1 << 20)
    assert held < 1 << 20 and caught.value is not None


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_a_small_limit_is_looked_at_before_anything_is_unpacked(codec: int) -> None:
    """A request of a thousand batches leaves each a kilobyte; 256 KiB of each were unpacked to see that."""
    bomb = compress(codec, bytes(1 << 20))
    decompress(codec, compress(codec, b"x"), 1)  # loads the package
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable, match="more than 1000 bytes"):
            decompress(codec, bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 128 << 10
    finally:
        tracemalloc.stop()
