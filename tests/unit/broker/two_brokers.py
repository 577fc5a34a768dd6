"""Two brokers in one process: one coordinates transactions, the other one leads queues and coordinates groups.

What they ask one another is decided by the real service, and goes through the bytes of the real messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.transaction_routes import TransactionRoutes
from cairnmq.broker.cluster.transaction_service import TransactionService
from cairnmq.broker.internal.link import Link, LinkClosed
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode
from cairnmq.transactions.guards import Guards
from cairnmq.wire.internal import encode
from cairnmq.wire.internal_transactions import (
    KIND_OF,
    ControlRequest,
    ControlResponse,
    decode_request,
    decode_response,
)
from unit.broker.rig import Rig, open_rig

LEADER = 2  # the broker that leads queues, as both know it


class Wire:
    """A link for control. `before` is called when a request arrives, `after` before its response does."""

    def __init__(self, service: Callable[[], TransactionService]) -> None:
        self._service = service
        self.asked: list[ControlRequest] = []
        self.is_cut = False
        self.is_open = True
        self.delay = 0.0  # of responses, in seconds
        self.before: Callable[[ControlRequest], None] = lambda request: None
        self.after: Callable[[ControlRequest], None] = lambda request: None

    async def ask(self, request: ControlRequest) -> ControlResponse:
        if self.is_cut:
            raise LinkClosed("it is cut")
        asked = decode_request(KIND_OF[type(request)], encode(request))
        self.asked.append(asked)
        self.before(asked)
        told = await self._service().answer(asked, lambda: self.is_open)
        await asyncio.sleep(self.delay)
        self.after(asked)
        if self.is_cut:
            raise LinkClosed("it was cut")
        return decode_response(KIND_OF[type(told)], encode(told))


class TwoBrokers:
    """`coordinator` and `leader` serve clients; `to_coordinator` and `to_leader` are what they ask one another by."""

    def __init__(self, coordinator: Rig, leader: Rig) -> None:
        self.coordinator, self.leader = coordinator, leader
        self.to_coordinator = Wire(lambda: self.routes_of(coordinator).service)
        self.to_leader = Wire(lambda: self.routes_of(leader).service)
        self._routes: dict[int, TransactionRoutes] = {}
        for rig, wire in ((coordinator, self.to_leader), (leader, self.to_coordinator)):
            ctx = rig.ctx
            leadership = rig.join_cluster(JournalView(LEADER, leader.ctx.store.epochs[0], (1, 2, 3), (1, 2, 3)))
            guards = Guards()
            service = TransactionService(
                ctx.store, ctx.coordinators, leadership, guards, lambda ctx=ctx: ctx.catalog.image
            )  # type: ignore[misc]
            routes = TransactionRoutes(
                service,
                {LEADER: cast(Link, wire)},
                leadership,
                ctx.coordinators,
                guards,
                lambda ctx=ctx: ctx.catalog.image,  # type: ignore[misc]
                lambda: None,
            )
            self._routes[id(rig)] = routes
        coordinators, engine = coordinator.ctx.coordinators, coordinator.ctx.store.engine
        coordinators.drop(0)
        routes = self.routes_of(coordinator)
        coordinators.end_through(routes.write_markers, routes.end_offsets)
        coordinators.lead(0, engine.epochs[0], engine.keyed)
        leader.ctx = replace(leader.ctx, transactions=self.routes_of(leader))

    def routes_of(self, rig: Rig) -> TransactionRoutes:
        return self._routes[id(rig)]

    @property
    def guards(self) -> Guards:
        return self.routes_of(self.leader).guards


@asynccontextmanager
async def two_brokers(
    directory: Path, monkeypatch: pytest.MonkeyPatch, partitions: int = 2
) -> AsyncIterator[TwoBrokers]:
    (directory / "one").mkdir()
    (directory / "two").mkdir()
    async with open_rig(directory / "one") as coordinator, open_rig(directory / "two") as leader:
        both = TwoBrokers(coordinator, leader)
        for rig in (coordinator, leader):
            await rig.create("a", partitions=partitions)
        # The leader has its own slots in the same journal: of transactions it says that another broker has them.
        monkeypatch.setattr(leader.ctx.coordinators, "of_transaction", lambda name: ErrorCode.NOT_COORDINATOR)
        await coordinator.ctx.coordinators.start()
        yield both
