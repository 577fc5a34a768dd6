"""Walks over very many rows in pieces, between which the event loop does other work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

SLICE = 2_000


def slices(rows: Iterable[T]) -> Iterator[list[T]]:
    """At least one, if need be empty: who walks over many things without rows breathes too."""
    left = iter(rows)
    yield list(islice(left, SLICE))
    while part := list(islice(left, SLICE)):
        yield part
