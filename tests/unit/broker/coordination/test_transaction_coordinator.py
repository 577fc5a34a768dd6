"""The coordinator of transactions when its facts cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from cairnmq.broker.coordination import transaction_coordinator
from cairnmq.broker.coordination.fact_log import FactLog
from cairnmq.broker.coordination.transaction_coordinator import EndOffsets, TransactionCoordinator
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.pending import EndLimit
from cairnmq.storage.batches.markers import Marker
from cairnmq.transactions.messages import Add, End, Filter, Init, Limits, Producer
from cairnmq.transactions.record import State
from cairnmq.transactions.record import put as put_fact
from cairnmq.transactions.transactions import Transactions
from unit.broker.rig import scenario, until

DAY_MS = 86_400_000

DAY_MS = 86_400_000


OK = ErrorCode.NONE


async def no_markers(markers: Sequence[Marker]) -> list[ErrorCode]:
    return [ErrorCode.NONE] * len(markers)


async def end_offsets(groups: Sequence[str], producer_id: int, commit: bool, limit: EndLimit) -> None:
    pass


async def next_producer_id() -> int:
    return 5


def coordinator_of(
    core: Transactions,
    put: Callable[[Sequence[KeyedRecord], Callable[[Fault | None], None]], None],
    write_markers: Callable[[Sequence[Marker]], Awaitable[list[ErrorCode]]],
    end_offsets: EndOffsets = end_offsets,
    clock: Callable[[], int] = lambda: 1,
    wall: Callable[[], int] = lambda: 1,
) -> TransactionCoordinator:
    return TransactionCoordinator(
        core,
        FactLog(put, core.apply),
        write_markers=write_markers,
        end_offsets=end_offsets,
        next_producer_id=next_producer_id,
        clock=clock,
        wall=wall,
        epoch=1,
    )


@scenario
async def test_an_id_is_forgotten_for_a_new_one_only_if_that_can_be_stored() -> None:
    loop = asyncio.get_running_loop()
    full = False

    def put(facts: Sequence[KeyedRecord], stored: Callable[[Fault | None], None]) -> None:
        refused = full and facts[0][2] is None
        loop.call_soon(stored, Fault("the disk is full") if refused else None)

    core = Transactions(Limits(ids_max=2))
    coordinator = coordinator_of(core, put, no_markers)

    async def known_after(name: str) -> str:
        assert (await coordinator.init(Init(name, 1000))).error == ErrorCode.NONE
        await coordinator.close()
        again = Transactions.load([fact[1:] for fact in stored_facts(core)], core.limits)
        assert names(again) == names(core), "a restart knows the same ids"
        return names(core)

    assert [await known_after(name) for name in "abc"] == ["a", "ab", "bc"]
    full = True
    assert await known_after("d") == "bcd", "what could not be forgotten is known again"
    full = False
    assert await known_after("e") == "be", "and then it was the one used last: two are forgotten until there is room"


def stored_facts(core: Transactions) -> list[tuple[str, bytes, bytes]]:
    return [(fact[0], fact[1], fact[2] or b"") for fact in (put_fact(*item) for item in core._stored.items())]


def names(core: Transactions) -> str:
    return "".join(sorted(name for name, _ in core.listed(Filter(), 1)))


@scenario
async def test_an_end_that_cannot_be_stored_is_not_tried_in_a_hot_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "RETRY_SECONDS", 0.2)
    loop = asyncio.get_running_loop()
    full = False
    rounds: list[float] = []
    done = asyncio.Event()

    def put(facts: Sequence[KeyedRecord], stored: Callable[[Fault | None], None]) -> None:
        loop.call_soon(stored, Fault("the disk is full") if full else None)

    async def write_markers(markers: Sequence[Marker]) -> list[ErrorCode]:
        nonlocal full
        full = len(rounds) < 2  # what is stored after these markers: that the transaction is complete
        rounds.append(loop.time())
        if len(rounds) == 3:
            done.set()
        return [ErrorCode.NONE] * len(markers)

    core = Transactions(Limits())
    coordinator = coordinator_of(core, put, write_markers)
    ready = await coordinator.init(Init("x", 1000))
    me = Producer(ready.producer_id, ready.epoch)
    assert await coordinator.added(Add("x", me, queues=(3,))) == ErrorCode.NONE
    await coordinator.end(End("x", me, commit=True, raises_epoch=True))
    await done.wait()
    await coordinator.close()
    assert len(rounds) == 3 and rounds[2] - rounds[0] > 0.35, "each new try waits"


@scenario
async def test_an_end_that_failed_waits_for_its_offsets_before_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are on their way in another journal; computed anew, they would be stored over a commit made meanwhile."""
    monkeypatch.setattr(transaction_coordinator, "RETRY_SECONDS", 0.0)
    loop = asyncio.get_running_loop()
    tries: list[str] = []
    stored = asyncio.Event()

    async def write_markers(markers: Sequence[Marker]) -> list[ErrorCode]:
        tries.append("markers")
        if len(tries) == 1:
            raise Fault("the disk is full")
        return [ErrorCode.NONE] * len(markers)

    async def slow_offsets(groups: Sequence[str], producer_id: int, commit: bool, limit: EndLimit) -> None:
        tries.append("offsets")
        await stored.wait()
        tries.append("stored")

    core = Transactions(Limits())

    def put(facts: Sequence[KeyedRecord], told: Callable[[Fault | None], None]) -> None:
        loop.call_soon(told, None)

    coordinator = coordinator_of(core, put, write_markers, slow_offsets)
    ready = await coordinator.init(Init("x", 1000))
    me = Producer(ready.producer_id, ready.epoch)
    assert await coordinator.added(Add("x", me, queues=(3,), groups=("g",))) == ErrorCode.NONE
    ending = asyncio.create_task(coordinator.end(End("x", me, commit=True, raises_epoch=True)))
    await until(lambda: tries)
    await asyncio.sleep(0.05)
    assert tries == ["markers", "offsets"]
    stored.set()
    assert (await ending).error == ErrorCode.NONE
    assert tries == ["markers", "offsets", "stored"] * 2
    await coordinator.close()


@pytest.mark.parametrize("wrong_days", [30, -30])
@scenario
async def test_a_wrong_wall_clock_neither_forgets_ids_nor_ends_transactions(wrong_days: int) -> None:
    loop = asyncio.get_running_loop()
    up_ms, wall_ahead_ms = 5_000, 20_000 * DAY_MS
    old = Transactions(Limits())
    for name in ("idle", "open"):
        for fact in old.init(Init(name, 60_000), None, up_ms + wall_ahead_ms, 5).records:
            old.apply(fact)
    for fact in old.add(Add("open", Producer(5, 0), queues=(3,)), None, up_ms + wall_ahead_ms).records:
        old.apply(fact)
    core = Transactions.load([fact[1:] for fact in stored_facts(old)], Limits())
    coordinator = coordinator_of(
        core,
        lambda facts, stored: loop.call_soon(stored, None) and None,
        no_markers,
        clock=lambda: up_ms,
        wall=lambda: up_ms + wall_ahead_ms,
    )
    wall_ahead_ms += wrong_days * DAY_MS
    coordinator.start(1, 1)
    await asyncio.sleep(0.01)
    assert (await coordinator.init(Init("new", 60_000))).error == ErrorCode.NONE, "dated by the wrong clock"
    up_ms += 30_000
    await asyncio.sleep(0.01)
    assert [name for name, record in core.listed(Filter(), 0) if record.state is State.ONGOING] == ["open"]
    wall_ahead_ms -= wrong_days * DAY_MS
    up_ms += 29_000
    await asyncio.sleep(0.01)
    assert [name for name, record in core.listed(Filter(), 0) if record.state is State.ONGOING] == ["open"]
    up_ms += 2_000
    await asyncio.sleep(0.01)
    assert [name for name, record in core.listed(Filter(), 0) if record.state is State.ONGOING] == [], "a minute, up"
    for _ in range(3):
        up_ms += 3_600_000
        await asyncio.sleep(0.01)
    assert sorted(name for name, _ in core.listed(Filter(), 0)) == ["idle", "new", "open"]
    await coordinator.close()


@scenario
async def test_only_places_that_are_not_done_are_asked_again() -> None:
    asked: list[object] = []

    async def write_markers(markers: Sequence[Marker]) -> list[ErrorCode]:
        asked.append([marker.queue_id for marker in markers])
        first = len(asked) <= 2
        return [ErrorCode.NOT_LEADER_OR_FOLLOWER if first and marker.queue_id == 4 else OK for marker in markers]

    async def end(groups: Sequence[str], producer_id: int, commit: bool, limit: EndLimit) -> list[ErrorCode]:
        asked.append(list(groups))
        assert limit == EndLimit(me.epoch + 1, True, 1)
        return [ErrorCode.NONE if group == "g" or len(asked) > 2 else ErrorCode.NOT_COORDINATOR for group in groups]

    def put(facts: Sequence[KeyedRecord], told: Callable[[Fault | None], None]) -> None:
        asyncio.get_running_loop().call_soon(told, None)

    coordinator = coordinator_of(Transactions(Limits()), put, write_markers, end)
    ready = await coordinator.init(Init("x", 1000))
    me = Producer(ready.producer_id, ready.epoch)
    await coordinator.added(Add("x", me, queues=(3, 4), groups=("g", "h")))
    told = await coordinator.end(End("x", me, commit=True, raises_epoch=True))
    assert told.error == OK
    assert asked == [[3, 4], ["g", "h"], [4], ["h"]]
    await coordinator.close()
