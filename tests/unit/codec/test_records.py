"""Batches of records: against aiokafka's builder and reader, and against damage."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from cairnmq.codec.batch import CRC_START, HEADER_SIZE, read_header
from cairnmq.codec.compression import CODEC_NAMES, Undecodable
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches, last_records

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(
        1, 1_699_999_999_000, None, b"earlier than the first", (("trace", b"\x00\xff"), ("empty", b""), ("null", None))
    ),
    Record(2, 1_700_000_100_000, b"", None),
    Record(3, 1_700_000_000_500, b"k" * 300, b"v" * 70_000),
]
CODECS = pytest.mark.parametrize("codec", range(len(CODEC_NAMES)), ids=CODEC_NAMES)


@CODECS
def test_aiokafka_reads_what_we_build(codec: int) -> None:
    batch = MemoryRecords(build_batch(RECORDS, codec=codec, base_offset=40)).next_batch()
    assert batch is not None and batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [(40 + r.offset, r.timestamp, r.key, r.value, r.headers) for r in RECORDS]


@CODECS
def test_we_read_what_aiokafka_builds(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for r in RECORDS:
        assert builder.append(r.offset, r.timestamp, r.key, r.value, list(r.headers)) is not None
    assert list(decode_batch(builder.build())) == RECORDS


@CODECS
@pytest.mark.parametrize("count", [1, 3, 4, 100])
def test_the_last_records_are_those_of_the_whole_batch(codec: int, count: int) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=40)
    assert last_records(batch, count) == list(decode_batch(batch))[-count:]


def test_the_last_records_of_a_batch_that_lies_about_them() -> None:
    for claimed in (3, 5, 2**31 - 1):
        batch = bytearray(build_batch(RECORDS))
        batch[HEADER_SIZE - 4 : HEADER_SIZE] = struct.pack(">i", claimed)
        with pytest.raises(Undecodable, match="batch at offset 0"):
            last_records(batch, 2)
    batch = bytearray(build_batch(RECORDS))
    batch[HEADER_SIZE] = 1  # a size of -1
    with pytest.raises(Undecodable, match="has length -1"):
        last_records(batch, 2)
    with pytest.raises(Undecodable, match="more than 1000"):
        last_records(build_batch(RECORDS, codec=1), 2, 1000)


def test_header_fields() -> None:
    batch = build_batch(
        RECORDS, codec=4, producer_id=7, producer_epoch=3, base_sequence=99, base_offset=1000, transactional=True
    )
    header = read_header(batch)
    assert (header.base_offset, header.size, header.magic, header.count) == (1000, len(batch), 2, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 99)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_100_000)
    assert header.attributes == 0b10_100
    assert header.last_offset == 1003


def test_append_time_replaces_every_timestamp() -> None:
    read = list(decode_batch(build_batch(RECORDS, timestamp_type=1)))
    assert {r.timestamp for r in read} == {1_700_000_100_000}


def test_control_records_are_marked() -> None:
    marker = Record(0, 5, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0), control=True)
    assert [r.control for r in decode_batch(build_batch([marker], transactional=True))] == [True]
    assert [r.control for r in decode_batch(build_batch(RECORDS[:1], transactional=True))] == [False]


def test_header_names_that_are_not_utf8_come_through() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    (read,) = decode_batch(build_batch([Record(0, 0, None, None, ((name, b"1"),))]))
    assert read.headers[0][0].encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


def test_a_fetch_answer_is_cut_into_whole_batches() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=4)
    both = first + second
    for cut in range(len(both) + 1):
        whole = [bytes(b) for b in iter_batches(both[:cut])]
        assert whole == ([first, second] if cut == len(both) else [first] if cut >= len(first) else [])


def test_damage_is_found_by_the_crc() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[HEADER_SIZE + 8] ^= 1
    with pytest.raises(Undecodable, match="CRC does not match"):
        list(decode_batch(batch))


def resealed(batch: bytearray) -> bytes:
    """The batch with a CRC that matches its bytes: damage that only the reader of records can find."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


@pytest.mark.parametrize("count", [0, 3, 5, -1])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(Undecodable):
        list(decode_batch(resealed(batch)))


@pytest.mark.parametrize(
    ("at", "byte"), [(0, 0x7E), (0, 0x01), (0, 0x02), (4, 0x7E), (8, 0x7E), (14, 0x04), (14, 0x01)]
)
def test_lengths_that_do_not_fit_are_refused(at: int, byte: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, b"key", b"value")]))
    batch[HEADER_SIZE + at] = byte
    with pytest.raises(Undecodable, match="batch at offset 0"):
        list(decode_batch(resealed(batch)))


def test_a_number_without_end_is_refused() -> None:
    batch = bytearray(build_batch([Record(0, 0, b"k" * 40, b"v")]))
    batch[HEADER_SIZE + 2 : HEADER_SIZE + 20] = b"\xff" * 18
    with pytest.raises(Undecodable, match="more than 64 bits"):
        list(decode_batch(resealed(batch)))


def test_what_is_no_batch_is_refused() -> None:
    good = build_batch(RECORDS)
    old = bytearray(good)
    old[16] = 1
    short = bytearray(good)
    struct.pack_into(">i", short, 8, 10)
    for read in (lambda b: list(decode_batch(b)), lambda b: list(iter_batches(b))):
        with pytest.raises(Undecodable, match="format 1"):
            read(old)
        with pytest.raises(Undecodable, match="has length 22"):
            read(short)
    with pytest.raises(Undecodable, match="60 bytes are not a batch"):
        list(decode_batch(good[:60]))
    with pytest.raises(Undecodable, match=f"has length {len(good)}, but only {len(good) - 1} bytes are there"):
        list(decode_batch(good[:-1]))


def test_a_bomb_is_not_unpacked() -> None:
    batch = build_batch([Record(0, 0, None, bytes(2_000_000))], codec=4)
    assert len(batch) < 10_000
    with pytest.raises(Undecodable, match="more than 1000000"):
        list(decode_batch(batch, limit=1_000_000))
