"""Where to read from, as people write it: start, end, N, +N, -N, @TIME. Parsing and placing are pure."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

FORMS = (
    "start (or earliest), end (or latest), N (this offset), +N (N after the start), -N (N before the end), "
    "@TIME (ISO 8601 or ms since 1970)"
)

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
        raise ArgumentTypeError(f"unknown offset {text!r}: use {FORMS}")
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


def stop(spec: OffsetSpec, bounds: Bounds) -> int:
    """The first offset not to read; unlike the first to read it may lie behind what exists now."""
    if spec.kind == AT:
        return max(spec.value, bounds.start)
    if spec.kind == AFTER_START:
        return bounds.start + spec.value
    return place(spec, bounds)


def find_bounds(
    client: Client,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec | None = None,
    *,
    read_committed: bool = False,
) -> dict[int, Bounds]:
    """Of one topic; see find_bounds_of."""
    places = [TopicPartition(topic, index) for index in partitions]
    found = find_bounds_of(client, places, spec, read_committed=read_committed)
    return {place.partition: bounds for place, bounds in found.items()}


def find_bounds_of(
    client: Client, places: Iterable[TopicPartition], spec: OffsetSpec | None = None, *, read_committed: bool = False
) -> dict[TopicPartition, Bounds]:
    """Start, end and, where the spec needs it, the place of a time, from the brokers. For `read_committed` the end is
    where the first open transaction begins."""
    from cairnmq.client.records import EARLIEST, LATEST

    wanted: dict[str, list[int]] = {}
    for each in places:
        wanted.setdefault(each.topic, []).append(each.partition)
    starts = client.list_offsets_of(wanted, EARLIEST)
    ends = client.list_offsets_of(wanted, LATEST, read_committed=read_committed)
    found = client.list_offsets_of(wanted, spec.value) if spec is not None and spec.kind == TIME else None
    return {
        TopicPartition(name, i): Bounds(
            starts[name][i].offset, ends[name][i].offset, found[name][i].offset if found is not None else -1
        )
        for name, indexes in wanted.items()
        for i in indexes
    }
