"""What the coordinator stores: keyed facts, and a decision that holds them together with the answers they allow."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

Fact: TypeAlias = tuple[str, bytes, bytes | None]  # space, key, value (None: the key is gone)

Ticket: TypeAlias = object  # a request that waits; whoever asked knows what it is
A = TypeVar("A")


class Decision(Generic[A]):
    """`answers` may leave when `facts`, and every fact decided earlier for the same group, are durable."""

    __slots__ = ("facts", "answers")

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.answers: list[tuple[Ticket, A]] = []
