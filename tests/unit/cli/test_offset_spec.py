"""The forms of -o: what each means, where it lands, and which are none."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime

import pytest

from cairnmq.cli.offset_spec import (
    AFTER_START,
    AT,
    BEFORE_END,
    END,
    START,
    TIME,
    Bounds,
    OffsetSpec,
    parse_offset,
    place,
)

BOUNDS = Bounds(start=100, end=200)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("start", OffsetSpec(START)),
        ("end", OffsetSpec(END)),
        ("0", OffsetSpec(AT, 0)),
        ("42", OffsetSpec(AT, 42)),
        ("+5", OffsetSpec(AFTER_START, 5)),
        ("-5", OffsetSpec(BEFORE_END, 5)),
        ("@1700000000000", OffsetSpec(TIME, 1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", OffsetSpec(TIME, 1_700_000_000_000)),
        ("@2023-11-14T23:13:20.250+01:00", OffsetSpec(TIME, 1_700_000_000_250)),
    ],
)
def test_forms(text: str, spec: OffsetSpec) -> None:
    assert parse_offset(text) == spec


def test_a_time_without_a_zone_is_local() -> None:
    assert parse_offset("@2023-11-14").value == int(datetime(2023, 11, 14).timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "x", "+", "-", "--5", "+-5", "1.5", "@", "@yesterday", "5 ", "²"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="unknown offset|is n"):
        parse_offset(text)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("start", 100),
        ("end", 200),
        ("150", 150),
        ("+5", 105),
        ("-5", 195),
        ("7", 100),
        ("999", 200),
        ("+500", 200),
        ("-500", 100),
    ],
)
def test_places_lie_within_what_the_partition_holds(text: str, offset: int) -> None:
    assert place(parse_offset(text), BOUNDS) == offset


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert place(parse_offset("@5"), Bounds(100, 200, found=-1)) == 200
    assert place(parse_offset("@5"), Bounds(100, 200, found=170)) == 170
