"""What every handler may use: one frozen value per broker, which `assembly.py` makes. It lives on the loop thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cairnmq.broker.options import Address, ListenerSpec
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.types import Caller

if TYPE_CHECKING:
    from cairnmq.broker.cluster.nearest_reads import NearestReads
    from cairnmq.broker.cluster.transaction_routes import TransactionRoutes
    from cairnmq.broker.coordination.coordinators import Coordinators
    from cairnmq.broker.leadership import Elections, Leadership
    from cairnmq.broker.live_catalog import LiveCatalog
    from cairnmq.broker.memory_budget import Budget, Tally
    from cairnmq.broker.metrics import Metrics
    from cairnmq.broker.storage_loop.queue_sizes import LogSizes
    from cairnmq.broker.storage_loop.store import Store
    from cairnmq.settings.broker import BrokerConfig
    from cairnmq.wire.messages import DescribeJournalsResponse


class Node(Struct, frozen=True):
    """This broker as clients see it."""

    node_id: int
    rack: str | None
    cluster_id: str
    listeners: tuple[ListenerSpec, ...]

    @property
    def bootstrap(self) -> Address:
        return self.listeners[0].advertised

    def address_for(self, caller: Caller) -> Address:
        """Where this caller finds the broker again: at the listener that it came by."""
        for spec in self.listeners:
            if spec.name == caller.listener:
                return spec.advertised
        return self.bootstrap


class Served(Protocol):
    """The router as handlers see it."""

    def advertised(self) -> list[tuple[int, int, int]]: ...


class Context(Struct, frozen=True, eq=False, kw_only=True):
    """`clock` gives dates. `large_polls`: call these and parked fetches of many partitions respond now.
    `transactions`: those whose coordinators are elsewhere. `nearest`: reads of what others lead. `cluster_report`: what
    this broker knows of the others. `catch_up`: until it knows what the metadata say now. `forget_broker`: ends the
    registration of one that is gone. All five are None on one node."""

    store: Store
    catalog: LiveCatalog
    node: Node
    leadership: Leadership
    elections: Elections
    transactions: TransactionRoutes | None = None
    nearest: NearestReads | None = None
    cluster_report: Callable[[], DescribeJournalsResponse] | None = None
    catch_up: Callable[[], Awaitable[None]] | None = None
    forget_broker: Callable[[int], Awaitable[Refusal | None]] | None = None
    router: Served
    clock: Callable[[], int]
    metrics: Metrics
    budget: Budget
    objects: Budget
    answers: Budget
    group_bytes: Tally
    large_polls: set[Callable[[], None]]
    log_sizes: LogSizes
    coordinators: Coordinators

    @property
    def config(self) -> BrokerConfig:
        """As it is now: replaced when a dynamic setting changes, so read it when needed and never keep it."""
        return self.catalog.config

    def admits_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, queue_id: int
    ) -> ErrorCode:
        """Whether a batch may be staged, in this turn of the loop. Without the coordinator nothing is known; the code
        is the one that Kafka's producers try again on."""
        transactions = self.coordinators.of_transaction(transactional_id)
        if isinstance(transactions, ErrorCode):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return transactions.admits(transactional_id, producer_id, producer_epoch, queue_id)
