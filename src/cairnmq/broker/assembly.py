"""One composition root: a broker is put together here, whether it serves, is tested or is looked at (ADR 0020).

Pure wiring, without sockets, signals or files: each part gets in its constructor what it needs, and nothing later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from cairnmq.broker.context import Context, Node
from cairnmq.broker.coordination.coordinators import Coordinators, Place
from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.leadership import KnownBroker, Leadership, NoElections
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.broker.memory_budget import Budget
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

    async def start(self) -> None:
        """The splitter runs, time counts for groups and transactions, and what deleted topics left is dropped."""
        self.ctx.store.start()
        await self.ctx.coordinators.start()

    async def close(self) -> None:
        """What was decided is stored, then storage ends. Each part is closed, also when another one fails."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.ctx.store.stop)
            stack.push_async_callback(self.ctx.catalog.close)
            stack.push_async_callback(self.ctx.coordinators.close)


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
    config = metadata.config
    store = _store(storage, config, wall, steady)
    purges = OffsetPurges()
    catalog = LiveCatalog(metadata, store, purges, clock=wall, on_config=on_config)
    coordinators = Coordinators(catalog, store, _OnlyHere(node), purges, node_id=node.node_id, steady=steady, wall=wall)
    _coordinate(coordinators, storage)
    router = build_router()
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
        group_bytes=coordinators.group_bytes,
        large_polls=set(),
        log_sizes=LogSizes(),
        coordinators=coordinators,
    )
    return Broker(ctx, router)


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


class _OnlyHere(Struct, frozen=True, eq=False):
    """A broker that is alone leads every journal."""

    node: Node

    def leader_of(self, journal: int) -> Place:
        return Place(self.node.node_id, self.node.bootstrap.host, self.node.bootstrap.port)


def _coordinate(coordinators: Coordinators, storage: OpenStorage) -> None:
    """Every journal with slots. Decided on what is left of a damaged one, groups and transactions would go back to an
    older state."""
    engine = storage.engine
    for journal in dict.fromkeys(storage.slots.cycle):
        if engine.scans[journal].damage is None:
            coordinators.lead(journal, engine.epoch, engine.keyed)
        else:
            coordinators.damaged(journal)
