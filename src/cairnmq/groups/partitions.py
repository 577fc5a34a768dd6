"""Partitions by topic, as values: what a member has, should have, or must give back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]  # topic id -> partitions; never an empty set
Stored: TypeAlias = tuple[tuple[bytes, tuple[int, ...]], ...]  # the same in its one order

NOTHING: Partitions = {}


def gathered(rows: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    """From rows in any order; a topic may come more than once."""
    found: dict[bytes, set[int]] = {}
    for topic_id, partitions in rows:
        found.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items() if indexes}


def stored(partitions: Partitions) -> Stored:
    return tuple((topic_id, tuple(sorted(indexes))) for topic_id, indexes in sorted(partitions.items()))


def each(partitions: Partitions) -> Iterator[tuple[bytes, int]]:
    for topic_id, indexes in partitions.items():
        for index in indexes:
            yield topic_id, index


def minus(left: Partitions, right: Partitions) -> Partitions:
    kept = {topic_id: indexes - right.get(topic_id, frozenset()) for topic_id, indexes in left.items()}
    return {topic_id: indexes for topic_id, indexes in kept.items() if indexes}


def common(left: Partitions, right: Partitions) -> Partitions:
    kept = {topic_id: indexes & right[topic_id] for topic_id, indexes in left.items() if topic_id in right}
    return {topic_id: indexes for topic_id, indexes in kept.items() if indexes}


def union(left: Partitions, right: Partitions) -> Partitions:
    both = dict(left)
    for topic_id, indexes in right.items():
        both[topic_id] = both.get(topic_id, frozenset()) | indexes
    return both


def within(left: Partitions, right: Partitions) -> bool:
    return all(indexes <= right.get(topic_id, frozenset()) for topic_id, indexes in left.items())


def disjoint(left: Partitions, right: Partitions) -> bool:
    return all(indexes.isdisjoint(right.get(topic_id, frozenset())) for topic_id, indexes in left.items())


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
