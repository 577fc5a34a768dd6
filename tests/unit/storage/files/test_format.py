"""Bytes on disk: every byte of an entry and of a checkpoint frame is covered by a checksum."""

from __future__ import annotations

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.files.format import (
    BAD,
    DURABLE_FLAG,
    ENTRY_SIZE,
    FACT,
    INCOMPLETE,
    NEWER,
    NO_SEGMENTS,
    QUEUE_ID_MAX,
    SEGMENT,
    ArchivedTo,
    Entry,
    Fact,
    Keyed,
    Leader,
    QueueClosed,
    QueueIdentity,
    QueueOpened,
    QueueRow,
    SegmentHead,
    StartMoved,
    batch_frame,
    decode_fact,
    digits,
    encode_fact,
    has_unknown_flags,
    homes_of,
    is_newer_entry,
    numbered,
    read_entry,
    read_segment_head,
    segment_entry,
    segment_head,
    whole_frame,
)

SEED = 0x1234
BATCH_BYTES = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v")])
PAYLOAD = encode_fact(Keyed("offsets", b"g", b"7"))
ENTRIES = {
    "batch": batch_frame(3, 9, 77, memoryview(BATCH_BYTES), SEED, DURABLE_FLAG) + BATCH_BYTES,
    "fact": whole_frame(FACT, 3, 9, 77, PAYLOAD, SEED, DURABLE_FLAG) + PAYLOAD,
    "segment": segment_entry(2, SEED, 3, 77, 1000, Leader(4, 6)),
}
GOLDEN = {
    "batch": "ca1a020100000046000000030001000000000009000000000000004d1674b3b6",
    "fact": "ca1a020200000010000000030001000000000009000000000000004d5fecaf78" + PAYLOAD.hex(),
    "segment": "ca1a02030000001c000000030000000000000000000000000000004db85c0527"
    "000000020000123400000000000003e8000000040000000000000006",
}
GOLDEN_1 = {
    "batch": "ca1a010100000046000000030000000000000009000000000000004df4a001ee",
    "fact": "ca1a010200000010000000030000000000000009000000000000004d36df32b4" + PAYLOAD.hex(),
    "segment": "ca1a010300000010000000030000000000000000000000000000004dbf6ac314000000020000123400000000000003e8",
}
KINDS = pytest.mark.parametrize("data", ENTRIES.values(), ids=ENTRIES)


@KINDS
def test_an_entry_reads_back(data: bytes) -> None:
    entry = read_entry(memoryview(b"xx" + data), 2, 500, SEED)
    assert isinstance(entry, Entry)
    assert (entry.position, entry.end, entry.epoch, entry.synced) == (500, 500 + len(data), 3, 77)
    assert bytes(entry.payload) == data[ENTRY_SIZE:]


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_bytes_are_these(kind: str) -> None:
    assert ENTRIES[kind].hex().startswith(GOLDEN[kind])
    old = bytes.fromhex(GOLDEN_1[kind]) + (BATCH_BYTES if kind == "batch" else b"")
    before, now = (read_entry(memoryview(data), 0, 0, SEED) for data in (old, ENTRIES[kind]))
    assert isinstance(before, Entry) and isinstance(now, Entry)
    assert (before.queue_id, before.synced, before.flags) == (now.queue_id, 77, 0)
    assert now.flags == (0 if kind == "segment" else DURABLE_FLAG)


def test_a_segment_head_names_the_leader_since_version_2() -> None:
    old, now = (read_segment_head(bytes.fromhex(golden["segment"])) for golden in (GOLDEN_1, GOLDEN))
    assert old == SegmentHead(2, SEED, 1000, None)
    assert now == SegmentHead(2, SEED, 1000, Leader(4, 6))
    assert segment_head(bytes(20)) is None


@pytest.mark.parametrize("flag", [1 << bit for bit in range(16)])
def test_a_flag_that_must_be_understood_and_is_not(flag: int) -> None:
    """The low half; the other half may be ignored."""
    data = whole_frame(FACT, 3, 9, 77, PAYLOAD, SEED, flag) + PAYLOAD
    found = read_entry(memoryview(data), 0, 0, SEED)
    if flag in (DURABLE_FLAG, *(1 << bit for bit in range(8, 16))):
        assert isinstance(found, Entry) and (found.queue_id, found.flags) == (9, flag)
    else:
        assert found == NEWER and is_newer_entry(data, SEED) and has_unknown_flags(data)
        assert not is_newer_entry(data[:-1] + b"x", SEED), "it is torn, whoever wrote it"


def test_ids_of_queues_do_not_reach_the_flags() -> None:
    assert isinstance(read_entry(memoryview(framed(QUEUE_ID_MAX)), 0, 0, SEED), Entry)
    with pytest.raises(OverflowError):
        framed(QUEUE_ID_MAX + 1)


def framed(queue_id: int) -> bytes:
    return whole_frame(FACT, 3, queue_id, 77, PAYLOAD, SEED) + PAYLOAD


@pytest.mark.parametrize("segments_from", [NO_SEGMENTS, 0, 12])
def test_homes(segments_from: int) -> None:
    row = QueueRow(1, 0, 30, homes=homes_of(segments_from))
    assert row.segments_from == segments_from
    assert row.packed_end == (30 if segments_from == NO_SEGMENTS else segments_from)
    assert row.needs_packs is (segments_from != 0) and row.needs_segments is (segments_from != NO_SEGMENTS)


@KINDS
def test_no_flipped_bit_goes_unnoticed(data: bytes) -> None:
    for at in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            assert read_entry(memoryview(bad), 0, 0, SEED) in (BAD, INCOMPLETE), (at, bit)


@KINDS
def test_an_entry_cut_anywhere_is_incomplete(data: bytes) -> None:
    for size in range(len(data)):
        assert read_entry(memoryview(data[:size]), 0, 0, SEED) == INCOMPLETE


def test_clients_cannot_plant_entries_without_the_seed() -> None:
    assert read_entry(memoryview(ENTRIES["batch"]), 0, 0, SEED + 1) == BAD
    assert read_entry(memoryview(ENTRIES["fact"]), 0, 0, SEED + 1) == BAD


def test_a_segment_head_reads_without_the_seed() -> None:
    entry = read_entry(memoryview(ENTRIES["segment"]), 0, 0, 0)
    assert isinstance(entry, Entry) and entry.kind == SEGMENT


def test_an_absurd_length_is_bad_at_once() -> None:
    data = bytearray(ENTRIES["fact"])
    data[4:8] = b"\xff\xff\xff\xff"
    assert read_entry(memoryview(data), 0, 0, SEED) == BAD


@pytest.mark.parametrize("fact", [StartMoved(5), Keyed("s", b"k", None), QueueClosed(), QueueOpened(8), ArchivedTo(7)])
def test_facts_read_back(fact: Fact) -> None:
    assert decode_fact(encode_fact(fact)) == fact


def test_identity_is_sealed() -> None:
    identity = QueueIdentity(4, "topic", 1, "ab" * 16)
    data = identity.sealed()
    assert QueueIdentity.unseal(data, "queue.json").queue_id == 4
    for bad in (data.replace(b"topic", b"t0pic"), data[:-5], bytes(len(data)), b""):
        with pytest.raises(Corrupt, match="queue.json is damaged"):
            QueueIdentity.unseal(bad, "queue.json")


def test_only_whole_names_count() -> None:
    names = [digits(7, ".log"), digits(10**19, ".log"), "7.log", digits(7, ".log") + ".new", "x" * 20 + ".log", "lock"]
    assert numbered(names, ".log") == [7, 10**19]
