"""What every handler may use. One object per broker; everything in it lives on the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cairnmq.broker.clocks import steady_ms
from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.fact_log import FactLog
from cairnmq.broker.coordination.transaction_coordinator import TransactionCoordinator
from cairnmq.broker.memory_budget import Budget, Tally
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.options import Address, ListenerSpec
from cairnmq.broker.storage_loop.queue_sizes import LogSizes
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import ConsumerLimits, Limits
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE
from cairnmq.groups.stored_group import SPACE as GROUP_SPACE
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import LOSSES
from cairnmq.transactions.messages import Limits as TransactionLimits
from cairnmq.transactions.record import SPACE as TRANSACTION_SPACE
from cairnmq.transactions.transactions import Transactions
from cairnmq.types import Caller

if TYPE_CHECKING:
    from cairnmq.broker.live_catalog import LiveCatalog
    from cairnmq.broker.storage_loop.store import Store


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


class Context:
    """`config` is replaced when a dynamic setting changes; read it when needed, never keep it."""

    __slots__ = ("store", "catalog", "config", "node", "metrics", "clock", "budget", "objects", "answers",
                 "group_bytes", "large_polls", "log_sizes", "facts", "router", "coordinator",
                 "transactions")  # fmt: skip

    def __init__(
        self,
        *,
        store: Store,
        catalog: LiveCatalog,
        config: BrokerConfig,
        node: Node,
        offsets: Offsets,
        router: Served,
        clock: Callable[[], int],
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.config = config
        self.node = node
        self.router = router
        self.clock = clock
        self.metrics = Metrics()
        self.budget = Budget(config.cairn_request_bytes_max)
        self.objects = Budget(config.cairn_request_bytes_max // 2)
        self.answers = Budget(config.cairn_response_bytes_max)
        self.large_polls: set[Callable[[], None]] = set()  # answer parked fetches of many partitions now
        self.log_sizes = LogSizes()
        groups = Groups.load(store.load_facts(GROUP_SPACE), offsets, _limits(config), store.load_facts(MEMBER_SPACE))
        for key, value in store.load_facts(PENDING_SPACE):
            groups.apply((PENDING_SPACE, key, value))
        transactions = Transactions.load(
            store.load_facts(TRANSACTION_SPACE),
            _transaction_limits(config),
            epoch=store.epoch,
            # A repair of the checkpoint is a loss without an epoch: it keeps no record that may be too old.
            lost_epoch=max((int(key) for key, _ in store.load_facts(LOSSES) if key.isdigit()), default=-1),
        )

        def apply(fact: KeyedRecord) -> None:
            (transactions if fact[0] == TRANSACTION_SPACE else groups).apply(fact)

        self.group_bytes = Tally(config.cairn_group_bytes_max, groups.held_bytes)
        self.facts = FactLog(store.put_facts, apply)
        self.coordinator = Coordinator(groups, self.facts, steady_ms, clock, lambda: catalog.image)
        self.transactions = TransactionCoordinator(
            transactions,
            self.facts,
            write_markers=store.write_markers,
            end_offsets=self.coordinator.end_offsets,
            next_producer_id=catalog.next_producer_id,
            clock=steady_ms,
            wall=clock,
            epoch=store.epoch,
        )

    def admits_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, queue_id: int
    ) -> ErrorCode:
        """Whether a batch may be staged, in this turn of the loop. Transactions as of before a damage prove nothing;
        the code is the one that Kafka's producers try again on."""
        if not self.store.has_all_facts:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return self.transactions.admits(transactional_id, producer_id, producer_epoch, queue_id)


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        groups_max=config.cairn_groups_max,
        metadata_max=config.offset_metadata_max_bytes,
        session_min_ms=config.group_min_session_timeout_ms,
        session_max_ms=config.group_max_session_timeout_ms,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
        consumer=ConsumerLimits(
            session_ms=config.group_consumer_session_timeout_ms,
            interval_ms=config.group_consumer_heartbeat_interval_ms,
            size_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            may_upgrade=config.group_consumer_migration_policy in ("bidirectional", "upgrade"),
            may_downgrade=config.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        ),
    )


def _transaction_limits(config: BrokerConfig) -> TransactionLimits:
    return TransactionLimits(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        ids_max=config.cairn_transactional_ids_max,
    )
