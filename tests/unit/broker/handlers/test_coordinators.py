"""FindCoordinator, one key and many; and requests about what other brokers coordinate, or nobody at the moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairnmq.broker.coordination.coordinators import Place
from cairnmq.broker.http.status import Status
from cairnmq.errors import ErrorCode
from cairnmq.wire import messages as m
from cairnmq.wire.apis import SERVED
from cairnmq.wire.messages import FindCoordinatorRequest
from unit.broker.handlers.test_damaged_journal import COORDINATED, codes_in, for_version, questions
from unit.broker.handlers.test_transactions import Client, committed
from unit.broker.rig import Rig, open_rig, scenario

KEY = 10
OTHER = Place(2, "there", 9093)
LISTS = (16, 66)
HEARTBEAT = 12


class Elected:
    """Journals that another broker leads, or nobody; the others are this one's."""

    def __init__(self, **leaders: Place | None) -> None:
        self.leaders = leaders

    def leader_of(self, journal: int) -> Place | None:
        return self.leaders.get(f"j{journal}", Place(1, "never told", 1))


def lose(rig: Rig, journal: int, leader: Place | None = OTHER) -> None:
    rig.ctx.coordinators._places = Elected(**{f"j{journal}": leader})
    rig.ctx.coordinators.drop(journal)


def id_in(rig: Rig, journal: int, kind: str = "g") -> str:
    return next(name for name in (f"{kind}{n}" for n in range(100)) if rig.ctx.coordinators.place(name) == journal)


async def commit(rig: Rig, group: str, offset: int) -> int:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[row])
    answer = await rig.ask(8, 8, m.OffsetCommitRequest(group_id=group, topics=[topic]))
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@scenario
async def test_one_group(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(KEY, version, FindCoordinatorRequest(key="g"))
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", [4, 5, 6])
@scenario
async def test_many_groups_each_with_its_key(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(KEY, version, FindCoordinatorRequest(coordinator_keys=["g", "h"]))
        assert [(c.key, c.error_code, c.node_id, c.port) for c in answer.coordinators] == [
            ("g", 0, 1, 9092),
            ("h", 0, 1, 9092),
        ]
        assert (await rig.ask(KEY, version, FindCoordinatorRequest(coordinator_keys=[]))).coordinators == []


@scenario
async def test_transactional_ids(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        old = await rig.ask(KEY, 2, FindCoordinatorRequest(key="t", key_type=1))
        assert (old.error_code, old.node_id, old.port) == (0, 1, 9092)
        (new,) = (await rig.ask(KEY, 6, FindCoordinatorRequest(coordinator_keys=["t"], key_type=1))).coordinators
        assert (new.key, new.error_code, new.node_id) == ("t", 0, 1)


@scenario
async def test_share_groups_are_not_known(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        (answer,) = (await rig.ask(KEY, 6, FindCoordinatorRequest(coordinator_keys=["s"], key_type=2))).coordinators
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", sorted({*COORDINATED} - {10, *LISTS}))
@pytest.mark.parametrize("leader, code", [(OTHER, 16), (None, 16), (Place(1, "here", 1), 14)])
@scenario
async def test_what_is_answered_instead(key: int, leader: Place | None, code: int, tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("t")
        lose(rig, 0, leader)
        # Kafka answers heartbeats blindly while a group is loaded; aiokafka's consumer would end.
        expected = set() if (key, code) == (HEARTBEAT, 14) else {code}
        low, high = SERVED[key]
        for version in range(max(low, 0), high + 1):
            answer = await rig.ask(key, version, for_version(questions(key), key, version))
            assert set(codes_in(msgspec.to_builtins(answer))) - {0} == expected, (version, answer)


@pytest.mark.parametrize("key", LISTS)
@scenario
async def test_lists_have_what_this_broker_coordinates(key: int, tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a")
        names = [id_in(rig, journal) for journal in (0, 1)]
        for name in names:
            await commit(rig, name, 1)
            assert await Client(rig, name).init() == 0

        async def listed() -> tuple[int, set[str]]:
            if key == 16:
                answer = await rig.ask(16, 5, m.ListGroupsRequest())
                return answer.error_code, {each.group_id for each in answer.groups}
            answer = await rig.ask(66, 1, m.ListTransactionsRequest())
            return answer.error_code, {each.transactional_id for each in answer.transaction_states}

        assert await listed() == (0, set(names))
        lose(rig, 1)
        assert await listed() == (0, {names[0]})
        lose(rig, 1, Place(1, "here", 1))
        assert await listed() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {names[0]})


@pytest.mark.parametrize("version", [3, 6])
@scenario
async def test_where_it_is(version: int, tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        here, there = id_in(rig, 0), id_in(rig, 1)

        async def find(key: str, kind: int = 0) -> tuple[Any, ...]:
            if version < 4:
                one = await rig.ask(10, version, m.FindCoordinatorRequest(key=key, key_type=kind))
            else:
                request = m.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
                (one,) = (await rig.ask(10, version, request)).coordinators
            return one.error_code, one.node_id, one.host, one.port

        lose(rig, 1)
        for kind in (0, 1):
            assert await find(here, kind) == (0, 1, "127.0.0.1", 9092)
            assert await find(there, kind) == (0, 2, "there", 9093)
        lose(rig, 1, None)
        assert await find(there) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert await find(here) == (0, 1, "127.0.0.1", 9092)


@scenario
async def test_many_groups_in_one_request(tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a")
        here, there = id_in(rig, 0), id_in(rig, 1)
        for group in (here, there):
            assert await commit(rig, group, 5) == 0
        lose(rig, 1)
        asked = [m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in (here, there)]
        first, second = (await rig.ask(9, 9, m.OffsetFetchRequest(groups=asked))).groups
        assert (first.error_code, first.topics[0].partitions[0].committed_offset) == (0, 5)
        assert (second.error_code, second.topics) == (ErrorCode.NOT_COORDINATOR, [])
        described = (await rig.ask(15, 5, m.DescribeGroupsRequest(groups=[here, there]))).groups
        assert [each.error_code for each in described] == [0, ErrorCode.NOT_COORDINATOR]
        answer = await rig.ask(42, 2, m.DeleteGroupsRequest(groups_names=[there, here]))
        assert [each.error_code for each in answer.results] == [ErrorCode.NOT_COORDINATOR, 0]


@scenario
async def test_requests_under_way_when_it_moves(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = m.JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
            protocols=[protocol],
        )  # fmt: skip
        first = asyncio.ensure_future(rig.ask(11, 3, join))
        committing = asyncio.ensure_future(commit(rig, "h", 5))
        await asyncio.sleep(0)
        lose(rig, 0)
        assert (await first).error_code == ErrorCode.NOT_COORDINATOR
        assert await committing == ErrorCode.NOT_COORDINATOR
        rig.ctx.coordinators.lead(0, 2, {})
        assert rig.coordinator.groups.offsets.get("h", rig.ctx.catalog.image.topic("a").topic_id, 0) is None


@scenario
async def test_a_transaction_over_two_journals(tmp_path: Path) -> None:
    """Its id, and two groups, in slots of different journals."""
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a")
        groups = [id_in(rig, 0), id_in(rig, 1)]
        for journal, offset in ((0, 5), (1, 7)):
            client = await Client(rig, id_in(rig, journal, "t")).ready()
            for group in groups:
                assert await client.commit_offset(group, "a", offset) == 0
            assert await client.send("a", 0, b"x") == 0
            assert await client.end() == 0
            assert [await committed(rig, group, "a") for group in groups] == [(0, offset)] * 2


@scenario
async def test_batches_of_a_transaction_whose_coordinator_is_gone(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        assert await client.send("a", 0, b"x") == 0
        lose(rig, 0)
        assert await client.send("a", 0, b"y") == ErrorCode.NOT_ENOUGH_REPLICAS, "producers try again on it"


@scenario
async def test_pages_show_what_is_coordinated_here(tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a")
        here, there = id_in(rig, 0), id_in(rig, 1)
        for group in (here, there):
            assert await commit(rig, group, 5) == 0
        status = Status(lambda: 0.0)
        status.serve(rig.ctx)
        assert {row["group"] for row in await status.groups()} == {here, there}
        lose(rig, 1)
        assert [row["group"] for row in await status.groups()] == [here] and await status.group(there) is None
        assert (await status.group(here) or {})["offsets"][0]["committed"] == 5
        assert [row["group"] for row in await status.topic_groups("a") or ()] == [here]
        text = await status.metrics()
        assert f'group="{here}"' in text and f'group="{there}"' not in text
