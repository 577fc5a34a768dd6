"""A limit in bytes: what batches tell about records, and how many of those it lets through."""

from __future__ import annotations

import pytest

from cairnmq.codec.batch import BatchHeader, read_header
from cairnmq.codec.records import Record, build_batch
from cairnmq.spark.byte_limit import Seen, records_within, seen


def header(base: int, count: int, size: int) -> BatchHeader:
    """Of a batch of so many records of so many bytes."""
    return read_header(build_batch([Record(i, 0, None, bytes(size)) for i in range(count)], base_offset=base))


def test_what_lies_before_the_position_does_not_count() -> None:
    first, second = header(10, 10, 100), header(20, 5, 1000)
    assert seen(10, [first]) == Seen(10, first.size)
    assert seen(15, [first, second]) == Seen(10, pytest.approx(first.size / 2 + second.size))
    assert seen(20, [first, second]) == Seen(5, second.size)
    assert seen(15, []) == Seen(0, 0)


def test_offsets_that_compaction_has_emptied_take_nothing() -> None:
    batch = header(50, 10, 100)
    assert seen(10, [batch]) == Seen(50, batch.size)


def test_each_partition_counts_as_it_looks() -> None:
    left = {"a": {0: 100, 1: 1000}}
    samples = {"a": {0: Seen(10, 10_000), 1: Seen(100, 1000)}}
    assert records_within(left, samples, 110_000) is None, "all of it fits"
    assert records_within(left, samples, 55_000) == 550
    assert records_within(left, samples, 1) == 1


def test_a_partition_that_was_not_looked_at_counts_as_the_others() -> None:
    left = {"a": {0: 10, 1: 10}, "b": {0: 10}}
    for samples in ({"a": {0: Seen(5, 500)}}, {"a": {0: Seen(5, 500), 1: Seen(0, 0)}}):
        assert records_within(left, samples, 1500) == 15
    assert records_within(left, {}, 1500) is None, "nothing is known"
