"""Bytes on disk: every byte of an entry and of a checkpoint frame is covered by a checksum."""

from __future__ import annotations

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.files.format import (
    BAD,
    COMMIT,
    ENTRY_SIZE,
    FACT,
    INCOMPLETE,
    SEGMENT,
    CheckpointRows,
    Entry,
    Keyed,
    Leader,
    QueueClosed,
    QueueIdentity,
    QueueOpened,
    QueueRow,
    StartMoved,
    batch_frame,
    checkpoint_frame,
    decode_fact,
    digits,
    encode_fact,
    numbered,
    read_checkpoint_frame,
    read_entry,
    segment_entry,
    whole_frame,
)

SEED = 0x1234
BATCH_BYTES = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v")])
PAYLOAD = encode_fact(Keyed("offsets", b"g", b"7"))
ENTRIES = {
    "batch": batch_frame(3, 9, 77, memoryview(BATCH_BYTES), SEED) + BATCH_BYTES,
    "fact": whole_frame(FACT, 3, 9, 77, PAYLOAD, SEED) + PAYLOAD,
    "segment": segment_entry(2, SEED, 3, 77, 1000, Leader(4, 6)),
}
KINDS = pytest.mark.parametrize("data", ENTRIES.values(), ids=ENTRIES)


@KINDS
def test_an_entry_reads_back(data: bytes) -> None:
    entry = read_entry(memoryview(b"xx" + data), 2, 500, SEED)
    assert isinstance(entry, Entry)
    assert (entry.position, entry.end, entry.epoch, entry.synced) == (500, 500 + len(data), 3, 77)
    assert bytes(entry.payload) == data[ENTRY_SIZE:]


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


@pytest.mark.parametrize("fact", [StartMoved(5), Keyed("s", b"k", None), QueueClosed(), QueueOpened(8)])
def test_facts_read_back(fact: StartMoved | Keyed | QueueClosed | QueueOpened) -> None:
    assert decode_fact(encode_fact(fact)) == fact


def test_checkpoint_frames_notice_every_flipped_bit() -> None:
    frame = checkpoint_frame(COMMIT, CheckpointRows(queues=[QueueRow(1, 2, 3)], time_ms=9))
    found = read_checkpoint_frame(memoryview(frame), 0)
    assert found is not None and found[1].queues == [QueueRow(1, 2, 3)] and found[2] == len(frame)
    for at in range(len(frame)):
        bad = bytearray(frame)
        bad[at] ^= 0x10
        assert read_checkpoint_frame(memoryview(bad), 0) is None, at
        assert read_checkpoint_frame(memoryview(frame[:at]), 0) is None, at


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
