"""The coordinator of transactions when its facts cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from cairnmq.broker import transaction_coordinator
from cairnmq.broker.facts import FactLog
from cairnmq.broker.transaction_coordinator import TransactionCoordinator
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.facts import Fact
from cairnmq.storage.markers import Marker
from cairnmq.transactions.messages import Add, End, Init, Limits, Producer
from cairnmq.transactions.transactions import Transactions
from unit.broker.rig import scenario


@scenario
async def test_an_end_that_cannot_be_stored_is_not_tried_in_a_hot_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "RETRY_SECONDS", 0.2)
    loop = asyncio.get_running_loop()
    full = False
    rounds: list[float] = []
    done = asyncio.Event()

    def put(facts: Sequence[Fact], stored: Callable[[Fault | None], None]) -> None:
        loop.call_soon(stored, Fault("the disk is full") if full else None)

    async def write_markers(markers: Sequence[Marker]) -> list[ErrorCode]:
        nonlocal full
        full = len(rounds) < 2  # what is stored after these markers: that the transaction is complete
        rounds.append(loop.time())
        if len(rounds) == 3:
            done.set()
        return [ErrorCode.NONE] * len(markers)

    async def end_offsets(groups: frozenset[str], producer_id: int, commit: bool) -> None:
        pass

    async def next_producer_id() -> int:
        return 5

    core = Transactions(Limits())
    coordinator = TransactionCoordinator(
        core,
        FactLog(put, core.apply),
        write_markers=write_markers,
        end_offsets=end_offsets,
        next_producer_id=next_producer_id,
        clock=lambda: 1,
        epoch=1,
    )
    ready = await coordinator.init(Init("x", 1000))
    me = Producer(ready.producer_id, ready.epoch)
    assert await coordinator.added(Add("x", me, queues=(3,))) == ErrorCode.NONE
    await coordinator.end(End("x", me, commit=True, raises_epoch=True))
    await done.wait()
    await coordinator.close()
    assert len(rounds) == 3 and rounds[2] - rounds[0] > 0.35, "each new try waits"
