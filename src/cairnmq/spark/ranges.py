"""Which offsets each Spark task reads: ranges split when they are long, put together when they are short. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.spark.progress import Progress

RECORDS_PER_TASK = 20_000  # a task costs tens of milliseconds; shorter ranges share one up to this


class Range(Struct, frozen=True):
    """Offsets from `start` to before `end`, of the topic with this id."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.start


def ranges_between(start: Progress, end: Progress) -> list[Range]:
    """What lies between, in order; `start` names all that `end` does."""
    found = []
    for name, topic in sorted(end.topics.items()):
        begun = start.topics[name].offsets
        for index, stop in sorted(topic.offsets.items()):
            if begun[index] < stop:
                found.append(Range(name, topic.id, index, begun[index], stop))
    return found


def tasks(ranges: Sequence[Range], least: int | None, longest: int | None) -> list[tuple[Range, ...]]:
    """Ranges for each task. `longest`: so many records at most in a range; `least`: at least so many tasks, if there
    are as many records. Without either, short ranges share tasks."""
    pieces = [piece for whole in ranges for piece in _cut(whole, _parts_by_length(whole, longest))]
    if least is not None and len(pieces) < least:
        pieces = _cut_more(pieces, least)
    if least is not None or longest is not None:
        return [(piece,) for piece in pieces]
    return _packed(pieces)


def _parts_by_length(whole: Range, longest: int | None) -> int:
    return 1 if longest is None else -(-whole.records // longest)


def _cut_more(pieces: Sequence[Range], least: int) -> list[Range]:
    """Cuts in proportion to length until there are `least`: each next cut goes to what is longest then."""
    parts = [1] * len(pieces)
    for _ in range(least - len(pieces)):
        at = max(range(len(pieces)), key=lambda i: pieces[i].records / parts[i], default=-1)
        if at < 0 or pieces[at].records <= parts[at]:
            break
        parts[at] += 1
    return [part for piece, count in zip(pieces, parts, strict=True) for part in _cut(piece, count)]


def _cut(whole: Range, count: int) -> list[Range]:
    """`count` parts that differ by at most one record."""
    at = [whole.start + whole.records * i // count for i in range(count + 1)]
    return [
        Range(whole.topic, whole.topic_id, whole.partition, low, high) for low, high in zip(at, at[1:], strict=False)
    ]


def _packed(pieces: Sequence[Range]) -> list[tuple[Range, ...]]:
    """Neighbours share a task while they are short together."""
    found: list[tuple[Range, ...]] = []
    held: list[Range] = []
    records = 0
    for piece in pieces:
        if held and records + piece.records > RECORDS_PER_TASK:
            found.append(tuple(held))
            held, records = [], 0
        held.append(piece)
        records += piece.records
    return [*found, tuple(held)] if held else found
