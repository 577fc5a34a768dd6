"""Positions resolved against a topic that only exists here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cairnmq.client.records import EARLIEST, LATEST
from cairnmq.spark.errors import OptionError
from cairnmq.spark.position import Position, parse_position, resolve

PARTITIONS = {"a": [0, 1]}


def lookup(topic: str, partitions: Sequence[int], time: int) -> Mapping[int, int]:
    """Each partition holds offsets 10 to 19, written at times 100 to 109."""
    special = {EARLIEST: 10, LATEST: 20}
    found = special[time] if time in special else 10 + max(0, time - 100) if time < 110 else -1
    return dict.fromkeys(partitions, found)


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Position("earliest"), {0: 10, 1: 10}),
        (Position("latest"), {0: 20, 1: 20}),
        (parse_position("o", '{"a": {"0": 12, "1": -2}}'), {0: 12, 1: 10}),
        (parse_position("o", '{"a": {"0": -1, "1": 13}}'), {0: 20, 1: 13}),
        (Position("timestamp", timestamp=103), {0: 13, 1: 13}),
        (Position("timestamps", {"a": {0: 101, 1: 50}}), {0: 11, 1: 10}),
    ],
)
def test_resolved(position: Position, offsets: dict[int, int]) -> None:
    assert resolve("startingOffsets", position, PARTITIONS, lookup) == {"a": offsets}


def test_a_time_without_a_record() -> None:
    late = Position("timestamps", {"a": {0: 101, 1: 500}})
    with pytest.raises(OptionError, match="a-1 has no record at or after 500"):
        resolve("startingTimestamp", late, PARTITIONS, lookup)
    assert resolve("startingTimestamp", late, PARTITIONS, lookup, late_is_latest=True) == {"a": {0: 11, 1: 20}}


def test_offsets_must_name_all_partitions_and_no_others() -> None:
    with pytest.raises(OptionError, match="a-1 is missing"):
        resolve("startingOffsets", parse_position("o", '{"a": {"0": 1}}'), PARTITIONS, lookup)
    with pytest.raises(OptionError, match="names a-2, which this query does not read"):
        resolve("startingOffsets", parse_position("o", '{"a": {"0": 1, "1": 1, "2": 1}}'), PARTITIONS, lookup)
