"""Where to read from, as people write it: start, end, N, +N, -N, @TIME. Parsing and placing are pure."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

FORMS = "start | end | N (that offset) | +N (N after the start) | -N (N before the end) | @TIME (ms or ISO 8601)"

START, END, AT, AFTER_START, BEFORE_END, TIME = "start", "end", "at", "after start", "before end", "time"


class OffsetSpec(Struct, frozen=True):
    kind: str
    value: int = 0


class Bounds(Struct, frozen=True):
    """What a partition holds: offsets from start up to, not including, end. `found`: where a time was found, or -1."""

    start: int
    end: int
    found: int = -1


def parse_offset(text: str) -> OffsetSpec:
    """For argparse: the spec, or ArgumentTypeError with the forms that exist."""
    if text in ("start", "beginning", "earliest"):
        return OffsetSpec(START)
    if text in ("end", "latest"):
        return OffsetSpec(END)
    if text.startswith("@"):
        return OffsetSpec(TIME, parse_time(text[1:]))
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not digits.isascii() or not digits.isdecimal():
        raise ArgumentTypeError(f"{text!r} is none of: {FORMS}")
    return OffsetSpec({"": AT, "+": AFTER_START, "-": BEFORE_END}[sign], int(digits))


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from digits or ISO 8601; without a zone it is local time."""
    try:
        digits = text.isascii() and text.isdecimal()
        time_ms = int(text) if digits else int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor a time like 2026-08-01T12:00:00Z"
        ) from None
    if not 0 <= time_ms < 2**63:  # negative ones are names for brokers: -1 is the end
        raise ArgumentTypeError(f"{text!r} is before 1970 or too late")
    return time_ms


def place(spec: OffsetSpec, bounds: Bounds) -> int:
    """The offset to read first; always one that the partition can answer."""
    if spec.kind == START:
        wanted = bounds.start
    elif spec.kind == END:
        wanted = bounds.end
    elif spec.kind == AFTER_START:
        wanted = bounds.start + spec.value
    elif spec.kind == BEFORE_END:
        wanted = bounds.end - spec.value
    elif spec.kind == TIME:
        wanted = bounds.found if bounds.found >= 0 else bounds.end
    else:
        wanted = spec.value
    return min(max(wanted, bounds.start), bounds.end)


def find_bounds(
    client: Client,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec | None = None,
    *,
    read_committed: bool = False,
) -> dict[int, Bounds]:
    """Start, end and, where the spec needs it, the place of a time, from the brokers. For `read_committed` the end is
    where the first open transaction begins."""
    from cairnmq.client.data import EARLIEST, LATEST

    indexes = list(partitions)
    starts = client.list_offsets(topic, indexes, EARLIEST)
    ends = client.list_offsets(topic, indexes, LATEST, read_committed=read_committed)
    found = client.list_offsets(topic, indexes, spec.value) if spec is not None and spec.kind == TIME else {}
    return {i: Bounds(starts[i].offset, ends[i].offset, found[i].offset if i in found else -1) for i in indexes}
