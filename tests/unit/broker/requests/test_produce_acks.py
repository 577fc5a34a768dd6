"""Produce into a journal with several replicas: the in-sync ones before and after the append, time limits, the end of a
leadership while producers wait, and who may answer acks=1."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.leadership import JournalView
from cairnmq.broker.requests import deadlines as deadlines_module
from cairnmq.broker.requests.reply import CloseConnection
from cairnmq.errors import ErrorCode
from cairnmq.storage.live.write_path import WritePath
from cairnmq.wire.messages import ProduceRequest
from unit.broker.rig import Rig, batch, open_rig, scenario, until


async def sent(rig: Rig, *, acks: int = -1, version: int = 10, timeout_ms: int = 10_000, topic: str = "a") -> Any:
    """Begun, and written here."""
    return await begun(rig, acks, version, timeout_ms, topic)


async def begun(rig: Rig, acks: int, version: int, timeout_ms: int, topic: str) -> asyncio.Future[Any]:
    end = rig.ctx.store.loops[0].path.journal.end
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    asked = asyncio.ensure_future(rig.ask(0, version, request))
    await until(lambda: asked.done() or rig.ctx.store.loops[0].path.journal.end > end)
    return asked


def row(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def replicated(path: WritePath) -> None:
    """And durable, which acks=all waits for by default."""
    path.replicated_to(path.journal.end)
    path.durable_to(path.journal.end)


def shrink(rig: Rig, isr: tuple[int, ...]) -> None:
    leadership = rig.ctx.leadership
    leadership.know(0, JournalView(1, leadership.view(0).epoch, (1, 2, 3), isr))


@scenario
async def test_all_waits_for_the_replicas_and_one_does_not(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", min_insync_replicas="2")
        path = rig.replicate()
        asked = await sent(rig)
        one = await sent(rig, acks=1)
        assert row(await one).error_code == 0 and not asked.done()
        replicated(path)
        assert (row(await asked).error_code, row(await asked).base_offset) == (0, 0)


@pytest.mark.parametrize(("isr", "code"), [((1, 2), 0), ((1,), ErrorCode.NOT_ENOUGH_REPLICAS)])
@scenario
async def test_too_few_in_sync_before(tmp_path: Path, isr: tuple[int, ...], code: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", min_insync_replicas="2")
        path = rig.replicate(isr=isr)
        end = rig.queue("a").state.end
        asked = await sent(rig)
        replicated(path)
        answer = row(await asked)
        assert answer.error_code == code
        if code:
            assert rig.queue("a").state.end == end, "nothing is appended"
            assert answer.error_message == "min.insync.replicas=2, but 1 replica is in sync"
        assert row(await (await sent(rig, acks=1))).error_code == 0, "acks=1 does not ask for them"


@scenario
async def test_too_few_in_sync_since(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", min_insync_replicas="3")
        await rig.create("b", min_insync_replicas="2")
        path = rig.replicate()
        asked, other = await sent(rig), await sent(rig, topic="b")
        shrink(rig, (1, 2))
        replicated(path)
        assert row(await asked).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert row(await asked).error_message == "min.insync.replicas=3, but 2 replicas are in sync"
        assert row(await other).error_code == 0
        assert rig.queue("a").high_watermark == 1, "it is stored all the same"


@scenario
async def test_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines_module, "LOOK_SECONDS", 0.005)
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path = rig.replicate()
        asked, patient, unlimited = await sent(rig, timeout_ms=20), await sent(rig), await sent(rig, timeout_ms=-1)
        answer = row(await asked)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert answer.error_message == "not replicated within timeout_ms=20"
        assert not patient.done() and not unlimited.done()
        replicated(path)
        assert [row(await each).error_code for each in (patient, unlimited)] == [0, 0]


@scenario
async def test_in_time_for_one_journal_and_not_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored must not be sent again."""
    monkeypatch.setattr(deadlines_module, "LOOK_SECONDS", 0.005)
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a", partitions=2)
        fast, slow = rig.queue("a", 0).journal, rig.queue("a", 1).journal
        paths = {journal: rig.replicate(journal) for journal in (0, 1)}
        parts = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"x")) for index in (0, 1)]
        request = ProduceRequest(
            acks=-1, timeout_ms=30, topic_data=[ProduceRequest.TopicProduceData(name="a", partition_data=parts)]
        )
        asked = asyncio.ensure_future(rig.ask(0, 10, request))
        await until(lambda: paths[slow].journal.end > paths[slow].journal.replicated_end)
        await until(lambda: paths[fast].journal.end > paths[fast].journal.replicated_end)
        replicated(paths[fast])
        told = [each.error_code for each in (await asked).responses[0].partition_responses]
        assert told == [0, ErrorCode.REQUEST_TIMED_OUT]
        replicated(paths[slow])  # which nobody waits for any more


@pytest.mark.parametrize("version", [9, 10, 12])
@scenario
async def test_another_leads_while_a_producer_waits(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.replicate()
        asked = await sent(rig, version=version)
        rig.lose()
        answer = await asked
        told = row(answer)
        assert (told.error_code, told.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert "broker 2 leads journal 0" in told.error_message
        if version >= 10:
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 2)
            (endpoint,) = answer.node_endpoints
            assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (2, "second", 9192, "rack-2")
        again = row(await (await sent(rig, version=version)))
        assert again.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario
async def test_nobody_leads_for_now(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.replicate()
        rig.lose(leader=-1)
        answer = await (await sent(rig))
        assert row(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row(answer).current_leader.leader_id, answer.node_endpoints) == (-1, [])


@scenario
async def test_acks_0_that_is_led_elsewhere_hangs_up(tmp_path: Path) -> None:
    """That is how its producer learns that it should ask who leads."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path = rig.replicate()
        rig.ctx.store.loops[0]._writing = True  # the write is under way: nothing is written, and it waits
        asked = asyncio.ensure_future(begun(rig, 0, 10, 1000, "a"))
        await until(lambda: path.lines._written)
        rig.lose()
        rig.ctx.store.loops[0]._writing = False
        with pytest.raises(CloseConnection):
            await (await asked)
        with pytest.raises(CloseConnection):
            await (await begun(rig, 0, 10, 1000, "a"))


@scenario
async def test_without_a_lease_only_all_is_served(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path, holds = rig.replicate(), [True]
        rig.ctx.leadership.lead(0, 1, lambda: holds[0], is_ready=True)
        assert row(await (await sent(rig, acks=1))).error_code == 0
        holds[0] = False
        assert row(await (await sent(rig, acks=1))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(CloseConnection):
            await (await sent(rig, acks=0))
        asked = await sent(rig)
        replicated(path)
        assert row(await asked).error_code == 0


@scenario
async def test_a_broker_that_hands_over_serves_only_all(tmp_path: Path) -> None:
    """Its followers may turn to the next leader before it hears of that one."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path = rig.replicate()
        assert row(await (await sent(rig, acks=1))).error_code == 0
        rig.ctx.leadership.is_leaving = True
        assert row(await (await sent(rig, acks=1))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        asked = await sent(rig)
        replicated(path)
        assert row(await asked).error_code == 0


@scenario
async def test_a_lease_that_ends_before_the_answer(tmp_path: Path) -> None:
    """A process that stood still between the write and the answer may be led no more."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path, holds = rig.replicate(), [True]
        rig.ctx.leadership.lead(0, 1, lambda: holds[0], is_ready=True)
        rig.ctx.store.loops[0]._writing = True
        asked = asyncio.ensure_future(begun(rig, 1, 10, 1000, "a"))
        await until(lambda: path.lines._written)
        holds[0] = False
        rig.ctx.store.loops[0]._writing = False
        rig.ctx.store.loops[0].staged()
        assert row(await (await asked)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario
async def test_a_disk_that_fails_is_not_a_lost_leadership(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        path = rig.replicate()
        asked = await sent(rig)
        path.stop("the disk is gone")
        path.lines.give_up()
        assert row(await asked).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@scenario
async def test_one_node_needs_no_time_limit(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        handle: Any = rig.broker.router.routes[0].call
        for _ in range(3):
            assert (await rig.produce("a", batch(b"x"))).error_code == 0
        assert handle.__self__.deadlines._timer is None


@scenario
async def test_all_without_a_sync_waits_for_the_mark(tmp_path: Path) -> None:
    """Until the metadata say that the journal acknowledges before it syncs, a power loss of all would go unnoticed."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", cairn_flush="none")
        path = rig.replicate()
        end = rig.queue("a").state.end
        refused = row(await (await sent(rig)))
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and rig.queue("a").state.end == end
        assert rig.ctx.leadership.weak_wanted == {0}
        assert row(await (await sent(rig, acks=1))).error_code == 0
        rig.ctx.leadership.know(0, JournalView(1, 1, (1, 2, 3), (1, 2, 3), is_weak=True))
        asked = await sent(rig)
        path.replicated_to(path.journal.end)
        assert row(await asked).error_code == 0
