"""Batches and offsets of transactions whose coordinator is another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.transactions.messages import Producer
from cairnmq.wire.internal_transactions import ControlRequest, EndOffsets, Enter, Entered, Markers
from cairnmq.wire.messages import ProduceRequest
from unit.broker.handlers.test_transactions import PRODUCE, V1, V2, Client, committed, settled, stable
from unit.broker.rig import batch, scenario
from unit.broker.two_brokers import TwoBrokers, two_brokers

OK = ErrorCode.NONE


class Remote(Client):
    """What is about the transaction goes to its coordinator, batches and offsets to the leader."""

    def __init__(self, both: TwoBrokers, version: int) -> None:
        super().__init__(both.coordinator, version=version)
        self.both = both

    async def send(self, topic: str, partition: int, *values: bytes) -> int:
        self.rig = self.both.leader
        try:
            return await super().send(topic, partition, *values)
        finally:
            self.rig = self.both.coordinator

    async def send_to(self, topic: str, sequences: Mapping[int, int]) -> list[int]:
        """A record to each of these partitions, with this sequence, in one request."""
        data = [
            ProduceRequest.PartitionProduceData(
                index=partition,
                records=batch(
                    b"x", producer_id=self.pid, producer_epoch=self.epoch, base_sequence=first, transactional=True
                ),
            )
            for partition, first in sequences.items()
        ]
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)],
        )
        answer = await self.both.leader.ask(0, PRODUCE[self.version], request)
        return [each.error_code for each in answer.responses[0].partition_responses]

    async def commit(self, group: str, offset: int) -> int:
        self.rig = self.both.leader
        try:
            return await self.commit_offset(group, "a", offset)
        finally:
            self.rig = self.both.coordinator

    async def add_group(self, group: str) -> None:
        from cairnmq.wire import messages as m

        answer = await self.rig.ask(
            25,
            3,
            m.AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, group_id=group
            ),
        )
        assert answer.error_code == 0


async def begun(both: TwoBrokers, version: int) -> Remote:
    client = await Remote(both, version).ready()
    if version == V1:
        assert await client.add("a", 0, 1) == [0, 0]
    return client


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
@scenario
async def test_a_whole_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, commit: bool) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await Remote(both, version).ready()
        for number in range(3):
            if version == V1:
                assert await client.add("a", 0, 1) == [0, 0]
                await client.add_group("g")
            assert [await client.send("a", partition, b"x") for partition in (0, 1, 0)] == [0, 0, 0]
            assert await client.commit("g", 10 + number) == 0
            assert stable(both.leader)[0] == 3 * number and not len(both.guards)
            assert await client.end(commit) == 0
            assert stable(both.leader) == (3 * number + 3, 3 * number + 3)
            assert await committed(both.leader, "g", "a") == (0, 10 + number if commit else -1)
        asked = [one for one in both.to_coordinator.asked if isinstance(one, Enter)]
        assert len(asked) == 9, "two queues and a group for each transaction; nobody asks about what is open"
        assert all(one.adds is (version == V2) for one in asked)
        kinds = [type(one) for one in both.to_leader.asked]
        assert kinds.count(Markers) == kinds.count(EndOffsets) == 3


@scenario
async def test_what_was_not_added_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await Remote(both, V1).ready()
        assert await client.send("a", 0, b"x") == ErrorCode.TRANSACTION_ABORTABLE
        assert await client.add("a", 0) == [0]
        assert await client.send("a", 0, b"x") == OK
        client.epoch += 1
        assert await client.send("a", 1, b"x") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert both.leader.queue("a", 1).end == 0 and not len(both.guards)


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_a_marker_overtakes_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, version)
        queue = both.leader.queue("a")

        def marker_comes(request: ControlRequest) -> None:
            both.guards.ended(queue.queue_id, Producer(client.pid, client.epoch + 1), raised=True)

        both.to_coordinator.after = marker_comes
        assert await client.send("a", 0, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert queue.end == 0
        both.to_coordinator.after = lambda request: None
        assert await client.send("a", 0, b"x") == OK


@scenario
async def test_an_end_overtakes_the_answer_about_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, V2)
        both.to_coordinator.after = lambda request: both.guards.ended(
            "g", Producer(client.pid, client.epoch + 1), raised=True
        )
        assert await client.commit("g", 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "all clients try again"
        both.to_coordinator.after = lambda request: None
        assert await client.commit("g", 5) == OK
        assert await client.end() == OK
        assert await committed(both.leader, "g", "a") == (0, 5)


@scenario
async def test_leadership_that_is_lost_closes_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, V2)
        both.to_coordinator.after = lambda request: both.guards.close_all()
        assert await client.send("a", 0, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS


@scenario
async def test_a_coordinator_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, V2)
        both.to_coordinator.is_cut = True
        assert await client.send("a", 0, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS, "producers try again"
        assert await client.commit("g", 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "all clients try again"
        assert not len(both.guards)


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_a_coordinator_that_is_not_linked_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The first batch of all waits for the link, and a later one cannot come before it."""
    async with two_brokers(tmp_path, monkeypatch) as both:
        client, routes = await begun(both, version), both.routes_of(both.leader)
        links = dict(routes._links)
        monkeypatch.setattr(routes, "_links", {})
        sending = asyncio.ensure_future(client.send("a", 0, b"x"))
        await asyncio.sleep(0.02)
        assert not sending.done() and routes.needs_links
        routes._links = links
        routes.linked(2, links[2])
        assert await sending == OK and both.leader.queue("a").end == 1


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_requests_of_a_producer_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The second has nothing to ask about, and comes while the first one asks about another queue."""
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, version)
        assert await client.send("a", 0, b"x") == OK
        asked = asyncio.get_running_loop().create_future()
        both.to_coordinator.before = lambda request: None if asked.done() else asked.set_result(request)
        both.to_coordinator.delay = 0.05
        first = asyncio.ensure_future(client.send_to("a", {0: 1, 1: 0}))
        await asked
        second = asyncio.ensure_future(client.send_to("a", {0: 2}))
        assert await second == [OK] and first.done() and await first == [OK, OK], "each has its sequence"
        assert not both.routes_of(both.leader).asking


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_no_batch_is_taken_before_one_that_is_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The queue does not know the producer, and would take any sequence. The first batch would never fit again."""
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, version)
        both.to_coordinator.is_cut = True
        assert await client.send_to("a", {0: 0}) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        both.to_coordinator.is_cut = False
        assert await client.send_to("a", {0: 1}) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await client.send_to("a", {0: 0}) == [OK]
        assert await client.send_to("a", {0: 1}) == [OK]
        assert both.leader.queue("a").end == 2 and not len(both.guards.turned_away)


@scenario
async def test_a_request_that_fails_leaves_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, V2)

        def breaks(*_: object, **__: object) -> None:
            raise ValueError("broken")

        with monkeypatch.context() as patch:
            patch.setattr(both.leader.ctx.store, "append", breaks)
            with pytest.raises(ValueError, match="broken"):
                await client.send("a", 0, b"x")
        assert not len(both.guards)
        assert await client.send("a", 0, b"x") == OK


@pytest.mark.parametrize("answer", [Entered(0, 0, [32_000]), Entered(32_000)])
@scenario
async def test_an_error_that_is_not_known_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Entered
) -> None:
    """A coordinator of a later version has told it: the producer tries again, and nobody waits for ever."""
    async with two_brokers(tmp_path, monkeypatch) as both:
        client, routes = await begun(both, V1), both.routes_of(both.leader)

        async def enter(asked: Enter) -> Entered:
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(routes, "enter", enter)
            async with asyncio.timeout(2):
                assert await client.send_to("a", {0: 0}) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert not len(both.guards)
        assert await client.send_to("a", {0: 1}) == [ErrorCode.NOT_ENOUGH_REPLICAS], "the first one comes first"
        assert await client.send_to("a", {0: 0}) == [OK]


@scenario
async def test_a_leader_that_cannot_be_asked_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        client = await begun(both, V2)
        assert await client.send("a", 0, b"x") == OK
        both.to_leader.is_cut = True
        tries = 0

        def comes_back(request: ControlRequest) -> None:
            nonlocal tries
            tries += 1

        both.to_leader.before = comes_back
        ending = asyncio.ensure_future(client.end())
        await asyncio.sleep(0.1)
        assert not ending.done() and stable(both.leader)[0] == 0
        both.to_leader.is_cut = False
        assert await ending == OK and tries
        assert stable(both.leader) == (2, 2)


@scenario
async def test_a_zombie_is_fenced_on_all_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        zombie = await begun(both, V2)
        assert await zombie.send("a", 0, b"x") == OK
        await Remote(both, V2).ready()
        await settled(both.coordinator)
        assert stable(both.leader) == (2, 2)
        assert await zombie.send("a", 0, b"y") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.send("a", 1, b"y") == ErrorCode.INVALID_PRODUCER_EPOCH
