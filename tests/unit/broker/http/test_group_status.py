"""Groups as people and monitoring see them: complete while there are few, bounded when there are many."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from cairnmq.broker.http import chunked, group_status
from cairnmq.broker.http.status import Status
from cairnmq.groups.consumer_messages import Report
from cairnmq.groups.messages import Join, Sync
from cairnmq.groups.offsets import Committed, OffsetKey, put
from unit.broker.http.test_server import open_web
from unit.broker.rig import Rig, batch, open_rig, scenario

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


async def commit(rig: Rig, group: str, topic: str, offsets: dict[int, int]) -> None:
    known = rig.ctx.catalog.image.topic(topic)
    assert known is not None
    facts = [put(OffsetKey(group, known.topic_id, index), Committed(offset)) for index, offset in offsets.items()]
    await rig.facts.commit(facts)


async def member(rig: Rig, group: str) -> str:
    """A stable group of one; the member's id."""
    answers: list[object] = []
    command = Join(group, "", "i-1", "reader", "/10.1.2.3", 10_000, 10_000, "consumer", (("range", b""),))
    rig.coordinator.join(command, answers.append)
    member_id: str = answers[0].member_id  # type: ignore[attr-defined]
    synced = asyncio.get_running_loop().create_future()
    rig.coordinator.sync(Sync(group, 1, member_id, "i-1", assignments={member_id: b""}), synced.set_result)
    assert (await synced).error == 0
    return member_id


@scenario
async def test_groups_with_members_with_offsets_and_with_both(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig, open_web(rig) as web:
        await rig.create("orders", partitions=2)
        await rig.produce("orders", batch(*[b"x"] * 5))
        await commit(rig, "simple", "orders", {0: 1})
        await commit(rig, "both", "orders", {0: 5, 1: 0})
        await member(rig, "both")
        both, simple = sorted(json.loads((await web.get("/api/v1/groups"))[2]), key=lambda row: row["group"])
        rows = both.pop("offsets")
        assert both == {
            "group": "both", "type": "classic", "state": "Stable", "protocol": "consumer", "members": 1,
            "partitions": 2, "lag": 0,
        }  # fmt: skip
        assert rows[0] == {"topic": "orders", "partition": 0, "committed": 5, "end": 5, "lag": 0}
        assert (simple["state"], simple["members"], simple["lag"]) == ("Empty", 0, 4)


@scenario
async def test_one_group_with_its_members(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig, open_web(rig) as web:
        member_id = await member(rig, "a/b")
        code, _, body = await web.get("/api/v1/groups/a%2Fb")
        assert code == 200
        assert json.loads(body) == {
            "group": "a/b", "type": "classic", "state": "Stable", "protocol": "consumer", "assignor": "range", "lag": 0,
            "offsets": [],
            "members": [
                {
                    "member_id": member_id, "instance_id": "i-1", "client_id": "reader", "host": "10.1.2.3",
                    "partitions": 0,
                }
            ],
        }  # fmt: skip
        assert (await web.get("/api/v1/groups/none"))[0] == 404


@scenario
async def test_a_page_about_many_partitions_is_made_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "SLICE", 10)
    async with open_rig(tmp_path) as rig:
        await rig.create("wide", partitions=100)
        await commit(rig, "g", "wide", dict.fromkeys(range(100), 0))
        status = Status(lambda: 0.0)
        status.serve(rig.ctx)
        await status.topics()  # sizes are measured on a thread, once
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for page in (status.topics(), status.topic("wide"), status.groups(), status.group("g"), status.metrics()):
            turns = 0
            await page
            assert turns >= 10, page
        counting.cancel()
        wide = await status.topic("wide")
        assert wide is not None and len(wide["partitions"]) == 100
        text = await status.metrics()
        for metric in ("kafka_topic_partition_current_offset", "cairn_group_lag", "kafka_consumergroup_lag"):
            assert text.count(f"\n{metric}{{") == 100


@scenario
async def test_a_deleted_topic_is_no_lag(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        gone = await rig.create("gone")
        await rig.create("kept")
        await rig.produce("kept", batch(b"x"))
        await commit(rig, "g", "gone", {0: 0})
        await commit(rig, "g", "kept", {0: 0})
        await rig.ctx.catalog.delete_topic(gone)
        (told,) = json.loads((await web.get("/api/v1/groups"))[2])
        assert [row["topic"] for row in told["offsets"]] == ["kept"]
        assert re.findall(r"^cairn_group_lag\{(.*)\}", (await web.get("/metrics"))[2].decode(), re.MULTILINE) == [
            'group="g",topic="kept",partition="0"'
        ]


@scenario
async def test_the_page_shows_those_furthest_behind(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_status, "GROUPS_SHOWN", 2)
        patch.setattr(group_status, "OFFSETS_SHOWN", 2)
        async with open_rig(tmp_path) as rig, open_web(rig) as web:
            await rig.create("orders", partitions=4)
            for partition in range(4):
                await rig.produce("orders", batch(*[b"x"] * 9), partition=partition)
            await commit(rig, "first", "orders", {0: 9})
            await commit(rig, "second", "orders", {0: 8, 1: 2, 2: 9, 3: 3})
            await commit(rig, "third", "orders", {0: 4})
            told = json.loads((await web.get("/api/v1/groups"))[2])
            assert [(row["group"], row["lag"], row["partitions"]) for row in told] == [
                ("second", 14, 4),
                ("third", 5, 1),
            ]
            assert [row["partition"] for row in told[0]["offsets"]] == [1, 3]
            whole = json.loads((await web.get("/api/v1/groups/second"))[2])
            assert [row["partition"] for row in whole["offsets"]] == [0, 1, 2, 3]


@scenario
async def test_series_of_lag_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_status, "LAG_SERIES", 3)
        async with open_rig(tmp_path) as rig, open_web(rig) as web:
            await rig.create("orders", partitions=2)
            for name in ("c", "a", "b"):
                await commit(rig, name, "orders", {0: 0, 1: 0})
            text = (await web.get("/metrics"))[2].decode()
            for metric in ("cairn_group_lag", "kafka_consumergroup_lag"):
                shown = re.findall(rf'^{metric}\{{\w+="(.)",topic="orders",partition="(.)"\}}', text, re.MULTILINE)
                assert shown == [("a", "0"), ("a", "1"), ("b", "0")]
            assert "\ncairn_group_lag_omitted 3\n" in text
            assert '\ncairn_groups{type="classic",state="Empty"} 3\n' in text
            assert '\ncairn_groups{type="consumer",state="Stable"} 0\n' in text


@scenario
async def test_a_group_of_the_consumer_protocol(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("orders", partitions=2)
        told = asyncio.get_running_loop().create_future()
        report = Report("g", "m", 0, "reader", "/10.1.2.3", None, "r1", 5_000, ["orders"], None, None, {})
        rig.coordinator.report(report, told.set_result)
        assert (await told).epoch == 2
        (row,) = json.loads((await web.get("/api/v1/groups"))[2])
        assert (row["type"], row["state"], row["members"]) == ("consumer", "Stable", 1)
        assert json.loads((await web.get("/api/v1/groups/g"))[2]) == {
            "group": "g", "type": "consumer", "state": "Stable", "protocol": "consumer", "assignor": "uniform",
            "epoch": 2, "target_epoch": 2, "lag": 0, "offsets": [],
            "members": [
                {"member_id": "m", "instance_id": None, "client_id": "reader", "host": "10.1.2.3", "rack": "r1",
                 "protocol": "consumer", "epoch": 2, "partitions": 2, "target_partitions": 2}
            ],
        }  # fmt: skip
        assert '\ncairn_groups{type="consumer",state="Stable"} 1\n' in (await web.get("/metrics"))[2].decode()
