"""What a coordinator decides: records to store, responses to send, effects to carry out. A pure value.

As Kafka's `CoordinatorResult`, with one difference: a decision may respond to several requests, because the end of a
rebalance responds to every member that waits for it.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

KeyedRecord: TypeAlias = tuple[str, bytes, bytes | None]  # space, key, value (None: the key is gone)
Ticket: TypeAlias = object  # a request that waits; a shell passes a callable, and it is called with the response

R = TypeVar("R")
E = TypeVar("E")


class Decision(Generic[R, E]):
    """The shell stores `records`, then sends `responses`, then carries out `effects`: both only when the records, and
    all that were decided earlier for the same key, are durable."""

    __slots__ = ("records", "responses", "effects")

    def __init__(self) -> None:
        self.records: list[KeyedRecord] = []
        self.responses: list[tuple[Ticket, R]] = []
        self.effects: list[E] = []

    def respond(self, ticket: Ticket, response: R) -> None:
        self.responses.append((ticket, response))
