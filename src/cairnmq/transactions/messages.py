"""What producers ask of the transaction coordinator, what it answers, and what must be done before it can."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from msgspec import Struct

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode
from cairnmq.transactions.record import NO_EPOCH, NO_ID, State


class IdCounts(Struct, frozen=True, gc=False):
    """How many transactional ids there are, and how many of them are without an open or ending transaction."""

    known: int = 0
    idle: int = 0


class Limits(Struct, frozen=True):
    """The broker's settings. `raises_epochs`: the broker's own aborts are of version 2 (KIP-890). `groups_max`: of one
    transaction; each is named in all facts about it. `elsewhere`: what this broker has in other journals."""

    timeout_max_ms: int = 900_000
    expiration_ms: int = 604_800_000
    ids_max: int = 100_000
    groups_max: int = 1000
    raises_epochs: bool = True
    elsewhere: Callable[[], IdCounts] = IdCounts


class Producer(Struct, frozen=True, gc=False):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


class Init(Struct, frozen=True):
    """`known`: the id and epoch that the producer has and wants to go on with (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    known: Producer | None = None


class Add(Struct, frozen=True):
    transactional_id: str
    producer: Producer
    queues: Collection[int] = ()
    groups: Collection[str] = ()


class End(Struct, frozen=True):
    """`raises_epoch`: the client speaks version 2, where each transaction has an epoch of its own (KIP-890)."""

    transactional_id: str
    producer: Producer
    commit: bool
    raises_epoch: bool


class Response(Struct, frozen=True, gc=False):
    error: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


class WriteMarkers(Struct, frozen=True):
    """The effect of a decided end: markers into these queues, and the end of what was committed in these groups. When
    all of them are durable, the shell says so with `Transactions.written`.

    `raised`: the producer's epoch is above that of the records, so a queue can tell a late marker.
    """

    transactional_id: str
    producer: Producer
    commit: bool
    raised: bool
    queues: frozenset[int]
    groups: frozenset[str]


TransactionDecision: TypeAlias = Decision[Response, WriteMarkers]


class Filter(Struct, frozen=True):
    """What ListTransactions asks for; empty collections and a negative duration let everything through."""

    states: frozenset[State] | None = None
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
