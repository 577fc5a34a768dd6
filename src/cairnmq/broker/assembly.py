"""One composition root: a broker is put together here, whether it serves, is tested or is looked at (ADR 0020).

Pure wiring, without sockets, signals or files: each part gets in its constructor what it needs, and nothing later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from cairnmq.broker.cluster.cluster_node import ClusterNode, Joined
from cairnmq.broker.context import Context, Node
from cairnmq.broker.coordination.coordinators import Coordinators, Place
from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.leadership import KnownBroker, Leadership, NoElections
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.requests.router import Router
from cairnmq.broker.routes import ABOUT_TOPICS, build_router
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.storage_loop.queue_sizes import LogSizes
from cairnmq.broker.storage_loop.store import Store
from cairnmq.settings.broker import BrokerConfig


class Broker(Struct, frozen=True, eq=False):
    """A broker without sockets for clients: what handlers use, and the order in which it starts and ends."""

    ctx: Context
    router: Router
    cluster: ClusterNode | None = None

    async def start(self) -> None:
        """The splitter runs, time counts for groups and transactions, and what deleted topics left is dropped. In a
        cluster it takes its roles."""
        self.ctx.store.start()
        await self.ctx.coordinators.start()
        if self.cluster is not None:
            await self.cluster.start()

    async def hand_over(self) -> None:
        """Before it takes no more requests."""
        if self.cluster is not None:
            await self.cluster.hand_over()

    async def close(self) -> None:
        """What was decided is stored, then storage ends. Each part is closed, also when another one fails."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.ctx.store.stop)
            stack.push_async_callback(self.ctx.catalog.close)
            if self.cluster is not None:
                stack.push_async_callback(self.cluster.close)
            stack.push_async_callback(self.ctx.coordinators.close)


def assemble(
    metadata: OpenMetadata,
    storage: OpenStorage,
    node: Node,
    *,
    runtime: Runtime,
    on_config: Callable[[BrokerConfig], None] = lambda config: None,
    joined: Joined | None = None,
) -> Broker:
    """`on_config` hears of settings that changed, after all parts
    have taken them over. `joined`: of a broker in a cluster. Nothing has started yet."""
    config = metadata.config
    store = _store(storage, config, runtime)
    purges = OffsetPurges()
    catalog = LiveCatalog(metadata, store, purges, clock=runtime.wall_ms, on_config=on_config)
    leadership = _alone(node, storage) if joined is None else Leadership(node.node_id)
    slots_wanted = asyncio.Event()
    coordinators = Coordinators(
        catalog,
        store,
        _Leaders(leadership),
        purges,
        node_id=node.node_id,
        steady=runtime.steady_ms,
        wall=runtime.wall_ms,
        uuid=runtime.uuid,
        want_slots=slots_wanted.set,
        may_serve=None if joined is None else leadership.may_answer_alone,
    )
    cluster = None
    if joined is None:
        _coordinate(coordinators, storage)
    else:
        cluster = ClusterNode(joined, node.cluster_id, store, catalog, leadership, coordinators, slots_wanted, runtime)
    router = build_router(runtime.random_bits)
    if cluster is not None:
        router.delay(ABOUT_TOPICS, cluster.catch_up)
    ctx = Context(
        store=store,
        catalog=catalog,
        node=node,
        leadership=leadership,
        elections=NoElections(node.node_id) if cluster is None else cluster.elections,
        transactions=None if cluster is None else cluster.transactions,
        nearest=None if cluster is None else cluster.nearest_reads(),
        cluster_report=None if cluster is None else cluster.report,
        catch_up=None if cluster is None else cluster.catch_up,
        forget_broker=None if cluster is None else cluster.forget,
        router=router,
        clock=runtime.wall_ms,
        metrics=Metrics(runtime.seconds),
        budget=Budget(config.cairn_request_bytes_max),
        objects=Budget(config.cairn_request_bytes_max // 2),
        answers=Budget(config.cairn_response_bytes_max),
        group_bytes=coordinators.group_bytes,
        large_polls=set(),
        log_sizes=LogSizes(),
        coordinators=coordinators,
    )
    return Broker(ctx, router, cluster)


def _alone(node: Node, storage: OpenStorage) -> Leadership:
    address, engine = node.bootstrap, storage.engine
    return Leadership.alone(
        KnownBroker(node.node_id, address.host, address.port, node.rack), engine.paths, engine.epochs
    )


def _store(storage: OpenStorage, config: BrokerConfig, runtime: Runtime) -> Store:
    return Store(
        storage.engine,
        lock_fds=storage.lock_fds,
        journal_dir=storage.journal_dir,
        data_dir=storage.data_dir,
        config=config,
        slots=storage.slots,
        runtime=runtime,
        recovery_seconds=storage.recovery_seconds,
    )


class _Leaders(Struct, frozen=True, eq=False):
    """Where clients find who leads a journal."""

    leadership: Leadership

    def leader_of(self, journal: int) -> Place | None:
        broker = self.leadership.broker(self.leadership.view(journal).leader)
        return None if broker is None else Place(broker.node_id, broker.host, broker.port)


def _coordinate(coordinators: Coordinators, storage: OpenStorage) -> None:
    """Every journal with slots. Decided on what is left of a damaged one, groups and transactions would go back to an
    older state."""
    engine, slots = storage.engine, storage.slots
    assert slots is not None, "made at the start of a broker that is alone"
    for journal in dict.fromkeys(slots.cycle):
        if engine.scans[journal].damage is None:
            coordinators.lead(journal, engine.epoch, engine.keyed)
        else:
            coordinators.damaged(journal)
