"""Compaction of random logs against a model: for every key the newest record, nothing else, and no hole in the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.codec.batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TIMESTAMP_MAX,
    TRANSACTIONAL_BIT,
    read_header,
    set_offset_and_epoch,
)
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, append_record, build_batch, decode_batch, decode_records, sealed_batch
from cairnmq.kernels import pick
from cairnmq.storage.batches import key_map
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges
from cairnmq.storage.compaction.sieve import KeyMap, Pass, compacted, note_keys
from cairnmq.storage.files.format import ProducerRow
from cairnmq.storage.queue.state import QueueState

SEED = bytes(range(16))
NOW = 1_700_000_000_000
RETENTION = 1000
CODECS = range(5)
KEYS = [None, b"", *(b"k%d" % number for number in range(6))]


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    return [
        Record(
            offset=0,
            timestamp=NOW - draw(st.integers(0, 5000)),
            key=draw(st.sampled_from(KEYS)),
            value=draw(st.one_of(st.none(), st.binary(max_size=12))),
            headers=(("h", b"1"),) if draw(st.booleans()) else (),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]


MARKER = {"commit": b"\x00\x00\x00\x01", "abort": b"\x00\x00\x00\x00"}


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of a queue: plain, of idempotent producers, of transactions with their markers, of rising epochs."""
    offset, epoch, made = draw(st.integers(0, 3)), 1, []
    sequences: dict[int, int] = {}
    is_open: set[int] = set()
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(("plain", "plain", "idempotent", "transaction", "marker")))
        options: dict[str, Any] = {"codec": draw(st.sampled_from(CODECS))}
        if kind == "marker":
            if not is_open:
                continue
            pid = draw(st.sampled_from(sorted(is_open)))
            is_open.discard(pid)
            fate = draw(st.sampled_from(("commit", "abort")))
            body = [Record(0, NOW, MARKER[fate], b"\x00\x00\x00\x00\x00\x00", control=True)]
            options = {"producer_id": pid, "producer_epoch": 0, "transactional": True}
        else:
            body = draw(records())
            if kind != "plain":
                pid = draw(st.sampled_from((1, 2) if kind == "idempotent" else (3, 4)))
                options |= {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequences.get(pid, 0)}
                sequences[pid] = sequences.get(pid, 0) + len(body)
                options["transactional"] = kind == "transaction"
                if kind == "transaction":
                    is_open.add(pid)
        epoch += draw(st.integers(0, 9)) == 0
        batch = bytearray(build_batch(body, base_offset=offset, timestamp_type=draw(st.integers(0, 1)), **options))
        set_offset_and_epoch(batch, offset, epoch)
        offset += len(body)
        made.append(bytes(batch))
    return made


def producers_of(log: Iterable[bytes]) -> dict[int, ProducerRow]:
    rows: dict[int, ProducerRow] = {}
    for batch in log:
        header = read_header(batch)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            last = header.base_sequence + header.last_offset_delta
            rows[header.producer_id] = ProducerRow(
                header.producer_id, 0, NOW, ((header.base_sequence, last, header.base_offset),)
            )
    return rows


def compact(
    log: list[bytes], now_ms: int, *, clean_end: int = 0, limit: int = 1000, retention_ms: int = RETENTION
) -> tuple[list[bytes], int]:
    """One pass; the log behind it, and the new clean end."""
    state = QueueState()
    for batch in log:
        state.apply_batch(batch, NOW)
    aborted = AbortedRanges(state.aborted)
    keys = KeyMap(limit, SEED)
    end = min([state.end, *state.open_transactions.values()])
    for batch in log:
        header = read_header(batch)
        if clean_end <= header.base_offset < end and not note_keys(keys, batch, aborted):
            end = header.base_offset
    course = Pass(keys, max(end, clean_end), now_ms, retention_ms, aborted, producers_of(log))
    return [bytes(entry.payload) for entry in compacted(log, course, 7)], course.end


def content(log: Iterable[bytes]) -> list[Record]:
    return [record for batch in log for record in decode_batch(batch) if not record.control]


def aborted_offsets(log: list[bytes]) -> set[int]:
    gone: set[int] = set()
    held: dict[int, list[int]] = {}
    for batch in log:
        header = read_header(batch)
        for record in decode_batch(batch):
            if record.control:
                assert record.key is not None
                offsets = held.pop(header.producer_id, [])
                if record.key == MARKER["abort"]:
                    gone.update(offsets)
            elif header.attributes & 0x10:
                held.setdefault(header.producer_id, []).append(record.offset)
    return gone


def wanted(log: list[bytes], end: int) -> list[Record]:
    """The model: below `end` the newest of each key that was not aborted, from there on everything."""
    gone = aborted_offsets(log)
    newest: dict[bytes, int] = {}
    for record in content(log):
        if record.key is not None and record.offset < end and record.offset not in gone:
            newest[record.key] = record.offset
    return [r for r in content(log) if r.offset >= end or (r.key is not None and newest.get(r.key) == r.offset)]


def assert_dense(log: list[bytes], like: list[bytes]) -> None:
    """Every offset is covered once, with the leader epoch it had, and every checksum is right."""
    epochs = {o: h.leader_epoch for h in map(read_header, like) for o in range(h.base_offset, h.last_offset + 1)}
    covered: dict[int, int] = {}
    for batch in log:
        header = read_header(batch)
        assert crc32c(batch[CRC_START:]) == header.crc
        assert header.size == len(batch)
        assert not covered or header.base_offset == max(covered) + 1
        covered.update(dict.fromkeys(range(header.base_offset, header.last_offset + 1), header.leader_epoch))
    assert covered == epochs


@settings(max_examples=100)
@given(logs())
def test_one_pass_leaves_the_newest_of_each_key(log: list[bytes]) -> None:
    after, end = compact(log, NOW)
    assert content(after) == wanted(log, end)
    assert_dense(after, log)
    assert {p: r.batches[-1] for p, r in producers_of(after).items()} == {
        p: r.batches[-1] for p, r in producers_of(log).items()
    }
    assert sum(map(len, after)) <= sum(map(len, log)) + HEADER_SIZE * len(log)


@settings(max_examples=60)
@given(logs(), st.integers(5, 8))
def test_many_passes_with_a_small_map_come_to_the_same(log: list[bytes], limit: int) -> None:
    after, end, before = log, 0, -1
    while end != before:
        before = end
        after, end = compact(after, NOW, clean_end=end, limit=limit)
        assert_dense(after, log)
    assert content(after) == wanted(log, end)
    assert end == compact(log, NOW)[1]


@settings(max_examples=60)
@given(logs())
def test_another_pass_changes_no_record_before_the_horizon(log: list[bytes]) -> None:
    once, end = compact(log, NOW)
    twice, _ = compact(once, NOW + RETENTION - 1, clean_end=end)
    assert content(twice) == content(once)


@settings(max_examples=60)
@given(logs())
def test_tombstones_and_markers_go_at_their_horizon(log: list[bytes]) -> None:
    once, end = compact(log, NOW)
    twice, _ = compact(once, NOW, clean_end=end)  # markers of what is empty now have a horizon too
    late, _ = compact(twice, NOW + RETENTION, clean_end=end)
    assert content(late) == [r for r in wanted(log, end) if r.value is not None or r.offset >= end]
    assert_dense(late, log)
    tombstones = {r.offset for r in content(once) if r.value is None and r.offset < end}
    for batch in once:
        if tombstones & {record.offset for record in decode_batch(batch)}:
            header = read_header(batch)
            assert header.attributes & DELETE_HORIZON_BIT and header.base_timestamp == NOW + RETENTION


def test_tombstones_and_markers_that_are_kept_for_ever() -> None:
    tombstone = build_batch([Record(0, NOW, b"k", None)])
    marker = build_batch(
        [Record(1, NOW, MARKER["commit"], bytes(6), control=True)], base_offset=1, producer_id=3, transactional=True
    )
    for now in (NOW, TIMESTAMP_MAX - 1):
        after, end = compact([tombstone, marker], now, retention_ms=TIMESTAMP_MAX)
        assert [read_header(batch).base_timestamp for batch in after] == [TIMESTAMP_MAX] * 2
        assert all(read_header(batch).attributes & DELETE_HORIZON_BIT for batch in after)
        assert [record.timestamp for batch in after for record in decode_batch(batch)] == [NOW, NOW]
        assert compact(after, now, clean_end=end, retention_ms=TIMESTAMP_MAX)[0] == after


EDGES = (-(2**63), -(2**62), -1, 0, NOW, 2**62, TIMESTAMP_MAX)


@pytest.mark.parametrize("base", EDGES)
def test_times_that_are_no_64_bit_numbers(base: int) -> None:
    """A producer may write any delta into its records. Kafka's clients add them up with 64 bits."""
    for delta in EDGES:
        for value, retention in ((b"v", 0), (None, RETENTION), (None, TIMESTAMP_MAX)):
            made = bytearray()
            for number, (key, time) in enumerate(((b"k", 0), (b"j", delta), (b"k", delta))):
                append_record(made, number, 0, Record(0, time, key, value))
            after, _ = compact([sealed_batch(made, 3, base, NOW)], NOW, retention_ms=retention)
            kept = list(decode_batch(after[0]))
            assert [(record.key, record.value) for record in kept] == [(b"j", value), (b"k", value)]
            assert {(record.timestamp - base - delta) % 2**64 for record in kept} == {0}
            newest = base + delta
            assert read_header(after[0]).max_timestamp == (newest if -(2**63) <= newest < 2**63 else NOW)


@settings(max_examples=60)
@given(logs(), st.integers(0, 40))
def test_it_goes_on_after_more_was_written(log: list[bytes], cut: int) -> None:
    first, rest = log[:cut], log[cut:]
    after, end = compact(first, NOW)
    after, end = compact([*after, *rest], NOW, clean_end=end)
    assert content(after) == wanted(log, end)
    assert_dense(after, log)


# ------------------------------------------------------------------------------------------- the kernel and its twin


def body(batch: list[Record]) -> bytes:
    return build_batch(batch)[HEADER_SIZE:]


@settings(max_examples=100)
@given(st.lists(records(), max_size=6), st.integers(0, 20), st.booleans())
def test_the_kernel_and_its_twin_agree(batches: list[list[Record]], end: int, keep: bool) -> None:
    kernel, twin = pick(key_map.KeyMap)(100, SEED), key_map.KeyMap(100, SEED)
    offset = 0
    for batch in batches:
        for one in (kernel, twin):
            one.note(body(batch), len(batch), len(batch) - 1, offset)
        offset += len(batch)
    assert kernel.count == twin.count
    for key in KEYS:
        assert key is None or kernel.newest(key) == twin.newest(key)
    offset = 0
    for batch in batches:
        count = len(batch)
        arguments = (body(batch), count, count - 1, offset, end, keep)
        assert kernel.sift(*arguments) == twin.sift(*arguments)
        for limit in (1, 2, 100):
            assert pick(key_map.keyless)(*arguments[:3], limit) == key_map.keyless(*arguments[:3], limit)
            window = (-2, end, 0, limit)
            assert pick(key_map.misdated)(*arguments[:3], *window) == key_map.misdated(*arguments[:3], *window)
        offset += count


@settings(max_examples=100)
@given(records(), st.data())
def test_both_refuse_the_same_nonsense(batch: list[Record], data: st.DataObject) -> None:
    raw = bytearray(body(batch))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    answers = []
    for keyless, misdated in (
        (pick(key_map.keyless), pick(key_map.misdated)),
        (key_map.keyless, key_map.misdated),
    ):
        try:
            count = len(batch)
            answers.append((keyless(raw, count, count - 1, 9), misdated(raw, count, count - 1, -1, 1, 0, 9)))
        except Undecodable:
            answers.append(None)
    assert answers[0] == answers[1]


def long_varint(number: int, size: int, last: int) -> bytes:
    """A number that is not negative, in more bytes than it needs; `last` is the last one's value."""
    zigzag = number << 1
    return bytes([*((zigzag >> 7 * place & 0x7F) | 0x80 for place in range(size - 1)), last])


@pytest.mark.parametrize("field", range(5))
@pytest.mark.parametrize("size", [9, 10, 11])
@pytest.mark.parametrize("last", [0, 1, 2, 0x40, 0x7F])
def test_numbers_of_ten_bytes_are_the_same_to_both(field: int, size: int, last: int) -> None:
    """In the place of a record's size, time, offset, size of key and size of value."""
    numbers = [bytes([2 * number]) for number in (0, 5, 0, 1, 1)]
    rest = [b"", b"", b"", b"k", b"v\0"]
    if field:
        numbers[field] = long_varint((0, 5, 0, 1, 1)[field], size, last)
    fields = b"\0" + b"".join(a + b for a, b in zip(numbers[1:], rest[1:], strict=True))
    start = bytearray()
    start += long_varint(len(fields), size, last) if not field else bytes([2 * len(fields)])
    answers = []
    for one in (pick(key_map.KeyMap), key_map.KeyMap):
        try:
            answers.append(one(10, SEED).sift(bytes(start) + fields, 1, 0, 0, 1, True))
        except Undecodable:
            answers.append(None)
    assert answers[0] == answers[1]
    if size == 9 and not last:
        assert answers[0] == (1, 0, 5, None)
    if size == 11 or (size == 10 and last > 1):
        assert answers[0] is None
        with pytest.raises(Undecodable):
            list(decode_records(read_header(build_batch([Record(0, 0, b"k", b"v")])), bytes(start) + fields))


def test_a_size_of_more_than_64_bits_stays_as_it_is() -> None:
    one = body([Record(0, NOW, b"k", None)])
    log = [sealed_batch(long_varint(len(one) - 1, 10, 2) + one[1:], 1, NOW, NOW)]
    assert compact(log, NOW)[0] == log


@pytest.mark.parametrize("raw", [b"\xff" * 12, b"\x0b" + bytes(11), b"\x7e" + bytes(11), b"\x02"])
def test_a_marker_that_cannot_be_read_stays_as_it_is(raw: bytes) -> None:
    log = [sealed_batch(raw, 1, NOW, NOW, producer=(5, 0, -1), flags=CONTROL_BIT | TRANSACTIONAL_BIT)]
    course = Pass(KeyMap(10, SEED), 1, NOW, RETENTION, AbortedRanges())
    assert [bytes(entry.payload) for entry in compacted(log, course, 7)] == log


def test_many_keys() -> None:
    """More than the kernel's first table holds."""
    keys = KeyMap(100_000, SEED)
    for first in range(0, 20_000, 100):
        batch = [Record(0, NOW, b"%d" % (number % 7000), b"") for number in range(first, first + 100)]
        keys.note(body(batch), 100, 99, first)
    assert keys.count == 7000
    assert [keys.newest(b"%d" % number) for number in (0, 5999, 6000, 6999)] == [14_000, 19_999, 13_000, 13_999]
    assert keys.newest(b"7000") == -1
    with pytest.raises(ValueError, match="16 bytes"):
        KeyMap(1, b"")


def test_what_cannot_be_decoded_stays() -> None:
    good = build_batch([Record(0, NOW, b"k", b"1")])
    odd = bytearray(build_batch([Record(0, NOW, b"k", b"2")], base_offset=1))
    odd[HEADER_SIZE + 3] = 0x33  # another offset delta than the batch can have
    odd[17:21] = crc32c(memoryview(odd)[CRC_START:]).to_bytes(4, "big")
    last = bytearray(build_batch([Record(0, NOW, b"k", b"3")], base_offset=2))
    after, _ = compact([good, bytes(odd), bytes(last)], NOW)
    assert after[1:] == [bytes(odd), bytes(last)]
    assert read_header(after[0]).count == 0
