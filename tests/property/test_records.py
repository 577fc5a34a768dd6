"""Any records, any codec: we and aiokafka read back what was built, and damage is refused cleanly."""

from __future__ import annotations

from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches

maybe_bytes = st.none() | st.binary(max_size=300)
timestamps = st.integers(min_value=-1, max_value=1 << 60)
headers = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=5).map(tuple)
records = st.builds(Record, st.just(0), timestamps, maybe_bytes, maybe_bytes, headers)
batches = st.lists(records, min_size=1, max_size=30)
codecs = st.integers(min_value=0, max_value=4)
offsets = st.integers(min_value=0, max_value=1 << 62)


def numbered(made: list[Record], base: int) -> list[Record]:
    return [Record(base + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(made)]


@given(batches, codecs, offsets)
def test_reading_gives_back_what_was_built(made: list[Record], codec: int, base: int) -> None:
    batch = build_batch(made, codec=codec, base_offset=base)
    assert list(decode_batch(batch)) == numbered(made, base)
    assert [bytes(b) for b in iter_batches(batch)] == [batch]


@given(batches, codecs)
def test_aiokafka_agrees(made: list[Record], codec: int) -> None:
    batch = MemoryRecords(build_batch(made, codec=codec)).next_batch()
    assert batch is not None and batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == numbered(made, 0)


@given(batches, codecs, st.data())
def test_damage_under_a_skipped_crc_never_escapes_as_another_error(
    made: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(made, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(decode_batch(batch, check_crc=False, limit=1 << 20))
        list(iter_batches(batch))
    except Undecodable:
        pass
