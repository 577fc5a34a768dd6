"""One composition root: a broker is put together here, whether it serves, is tested or is looked at (ADR 0020).

Pure wiring, without sockets, signals or files: each part gets in its constructor what it needs, and nothing later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from cairnmq.broker.context import Context, Node
from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.cores import Cores, group_limits, transaction_limits
from cairnmq.broker.coordination.offset_purge import OffsetPurge
from cairnmq.broker.coordination.transaction_coordinator import TransactionCoordinator
from cairnmq.broker.leadership import KnownBroker, Leadership, NoElections
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.broker.memory_budget import Budget, Tally
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.requests.router import Router
from cairnmq.broker.routes import build_router
from cairnmq.broker.storage_loop.queue_sizes import LogSizes
from cairnmq.broker.storage_loop.store import Store
from cairnmq.settings.broker import BrokerConfig


class Broker(Struct, frozen=True, eq=False):
    """A broker without sockets: what handlers use, and the order in which it starts and ends."""

    ctx: Context
    router: Router
    purge: OffsetPurge

    async def start(self) -> None:
        """The splitter runs, time counts for groups and transactions, and what deleted topics left is dropped."""
        ctx = self.ctx
        ctx.store.start()
        if not ctx.store.has_all_facts:
            return  # decided on what is known, groups and transactions would go back to an older state
        catalog, config = ctx.catalog, ctx.config
        self.purge.start(catalog.topic_ids)
        await asyncio.sleep(0)  # what it has to store stands before what clients bring
        ctx.coordinator.start(
            lambda: catalog.config.offsets_retention_minutes * 60_000,
            config.offsets_retention_check_interval_ms,
            catalog.topic_name,
        )
        ctx.transactions.start(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )

    async def close(self) -> None:
        """What was decided is stored, then storage ends. Each part is closed, also when another one fails."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.ctx.store.stop)
            stack.push_async_callback(self.ctx.catalog.close)
            stack.callback(self.purge.close)
            stack.push_async_callback(self.ctx.coordinator.close)
            stack.push_async_callback(self.ctx.transactions.close)


def assemble(
    metadata: OpenMetadata,
    storage: OpenStorage,
    node: Node,
    *,
    wall: Callable[[], int],
    steady: Callable[[], int],
    on_config: Callable[[BrokerConfig], None] = lambda config: None,
) -> Broker:
    """`wall` gives dates, `steady` is for time limits. `on_config` hears of settings that changed, after all parts
    have taken them over. Nothing has started yet."""
    config, epoch = metadata.config, storage.engine.epoch
    store = _store(storage, config, wall, steady)
    cores = _cores(storage, store, config)
    purge = OffsetPurge(cores.facts, cores.groups)
    catalog = LiveCatalog(metadata, store, purge, clock=wall, on_config=on_config)
    coordinator = Coordinator(cores.groups, cores.facts, steady, wall, lambda: catalog.image)
    transactions = TransactionCoordinator(
        cores.transactions,
        cores.facts,
        write_markers=store.write_markers,
        end_offsets=coordinator.end_offsets,
        next_producer_id=catalog.next_producer_id,
        clock=steady,
        wall=wall,
        epoch=epoch,
    )
    router = build_router(coordinates=store.has_all_facts)
    ctx = Context(
        store=store,
        catalog=catalog,
        node=node,
        leadership=_alone(node, storage),
        elections=NoElections(node.node_id),
        router=router,
        clock=wall,
        metrics=Metrics(),
        budget=Budget(config.cairn_request_bytes_max),
        objects=Budget(config.cairn_request_bytes_max // 2),
        answers=Budget(config.cairn_response_bytes_max),
        group_bytes=Tally(config.cairn_group_bytes_max, cores.groups.held_bytes),
        large_polls=set(),
        log_sizes=LogSizes(),
        facts=cores.facts,
        coordinator=coordinator,
        transactions=transactions,
    )
    return Broker(ctx, router, purge)


def _alone(node: Node, storage: OpenStorage) -> Leadership:
    address, engine = node.bootstrap, storage.engine
    return Leadership.alone(
        KnownBroker(node.node_id, address.host, address.port, node.rack), engine.paths, engine.epochs
    )


def _store(storage: OpenStorage, config: BrokerConfig, wall: Callable[[], int], steady: Callable[[], int]) -> Store:
    return Store(
        storage.engine,
        lock_fds=storage.lock_fds,
        journal_dir=storage.journal_dir,
        data_dir=storage.data_dir,
        config=config,
        slots=storage.slots,
        clock=wall,
        steady=steady,
        recovery_seconds=storage.recovery_seconds,
    )


def _cores(storage: OpenStorage, store: Store, config: BrokerConfig) -> Cores:
    return Cores.load(
        storage.engine.keyed,
        store.put_facts,
        slots=storage.slots,
        epoch=storage.engine.epoch,
        group_limits=group_limits(config),
        transaction_limits=transaction_limits(config),
    )
