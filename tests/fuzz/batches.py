"""Record batches as producers send them, and batches that are wrong inside while their CRC may be right."""

from __future__ import annotations

import random
import struct

from cairnmq.codec.batch import CRC_START, HEADER, HEADER_SIZE
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch

FIELDS = ("base_offset", "length", "epoch", "magic", "crc", "attributes", "delta", "base_timestamp", "max_timestamp",
          "producer_id", "producer_epoch", "sequence", "count")  # fmt: skip
SIGNED = {"q": 64, "i": 32, "b": 8, "h": 16}
LAYOUT = "qiibIhiqqqhii"
EDGES = [-1, 0, 1, 2, 5, 60, 61, 127, 1000, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]


def batch(rng: random.Random) -> bytes:
    """A right one nearly always: mutations of the frame, and `spoil`, make the others."""
    now = 1_700_000_000_000
    records = [
        Record(
            0,
            now + rng.choice([0, 1, -5, 1000]),
            rng.choice([None, b"", b"k"]),
            rng.choice([None, b"v", b"v" * 400]),
            (("h", b"1"),) if rng.random() < 0.2 else (),
        )
        for _ in range(rng.choice([1, 1, 2, 5, 50]))
    ]
    idempotent = rng.random() < 0.3
    made = build_batch(
        records,
        codec=rng.randrange(5),
        producer_id=rng.choice([0, 1, 5000, 2**62]) if idempotent else -1,
        producer_epoch=rng.choice([0, 1, 32767]) if idempotent else -1,
        base_sequence=rng.choice([0, 1, 2**31 - 1]) if idempotent else -1,
        transactional=rng.random() < 0.05,
    )
    return spoil(rng, made) if rng.random() < 0.5 else made


def spoil(rng: random.Random, made: bytes) -> bytes:
    """One thing wrong; the CRC is put right again half of the time, so that what lies behind that check is reached."""
    data = bytearray(made)
    match rng.randrange(9):
        case 0:
            values = list(HEADER.unpack_from(data))
            place = rng.randrange(len(LAYOUT))
            edge = rng.choice(EDGES)
            bits = SIGNED.get(LAYOUT[place], 32)
            values[place] = edge & 0xFFFFFFFF if LAYOUT[place] == "I" else _signed(edge, bits)
            HEADER.pack_into(data, 0, *values)
        case 1:
            values = list(HEADER.unpack_from(data))
            values[5] = rng.choice([1, 2, 3, 4, 5, 6, 7, 0x08, 0x10, 0x20, 0x40, -1])  # another codec, odd bits
            HEADER.pack_into(data, 0, *values)
        case 2:
            values = list(HEADER.unpack_from(data))
            count = rng.choice([0, 1, 2, 100, 2**31 - 1])
            values[6], values[12] = count - 1, count
            HEADER.pack_into(data, 0, *values)
        case 3:
            data = data[: rng.randrange(len(data))]
        case 4:
            data += rng.randbytes(rng.choice([1, 61, 500]))
        case 5:
            data += made  # two batches where one is allowed
        case 6:
            if len(data) > HEADER_SIZE:
                data[HEADER_SIZE:] = rng.randbytes(len(data) - HEADER_SIZE)  # garbage as records
        case 7:
            for _ in range(rng.choice([1, 1, 3, 20])):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 8:
            data = bytearray(rng.randbytes(rng.choice([0, 1, 60, 61, 62, 3000])))
    if rng.random() < 0.5 and len(data) >= HEADER_SIZE:
        struct.pack_into(">I", data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
