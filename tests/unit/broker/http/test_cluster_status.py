"""The cluster in JSON and metrics, as one of its brokers knows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.http.status import Status
from cairnmq.broker.leadership import JournalView
from scripted_cluster import ScriptedCluster
from unit.broker.http.test_server import open_web
from unit.broker.rig import Rig, batch, open_rig, scenario


def in_a_cluster(rig: Rig, scripted: ScriptedCluster) -> Rig:
    """Broker 1 of three."""
    rig.ctx = replace(rig.ctx, cluster_report=lambda: scripted.told_by(1))
    return rig


async def samples(rig: Rig, name: str) -> list[str]:
    status = Status(lambda: 0.0)
    status.serve(rig.ctx)
    return re.findall(rf"^{name}(.*)$", await status.metrics(), re.MULTILINE)


@scenario
async def test_one_node_has_no_cluster(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        assert "cluster" not in json.loads((await web.get("/api/v1/status"))[2])
        assert (await web.get("/api/v1/cluster"))[0] == 404
        assert await samples(rig, "cairn_led_journals") == [" 1"]
        assert await samples(rig, "cairn_offline_journals") == [" 0"]
        assert await samples(rig, "cairn_isr_size") == ['{journal="0"} 1']
        assert await samples(rig, "cairn_replica_lag_bytes") == []


@scenario
async def test_the_cluster_as_json(tmp_path: Path) -> None:
    scripted = ScriptedCluster()
    scripted.down, scripted.isr, scripted.behind = {3}, {1: [1, 2], 2: [1, 2], 3: [3]}, {(1, 2): 5}
    async with open_rig(tmp_path) as rig, open_web(in_a_cluster(rig, scripted)) as web:
        code, _, body = await web.get("/api/v1/cluster")
        told = json.loads(body)
        assert code == 200 and told == json.loads((await web.get("/api/v1/status"))[2])["cluster"]
    assert [(row["broker"], row["state"], row["leads"]) for row in told["brokers"]] == [
        (1, "live", 1),
        (2, "live", 1),
        (3, "down", 0),
    ]
    assert told["brokers"][0]["address"]["port"] == 9092
    assert [row["leader"] for row in told["journals"]] == [1, 2, -1]
    assert told["journals"][0]["replicas"][1]["lag_bytes"] == 5
    assert told["journals"][1]["replicas"][0]["lag_bytes"] is None, "what another leads it does not know"
    assert told["problems"][0].startswith("journal 3: no leader") and "broker 3 is down" in told["problems"]


@scenario
async def test_replicas_as_metrics(tmp_path: Path) -> None:
    scripted = ScriptedCluster()
    scripted.behind = {(1, 2): 5}
    async with open_rig(tmp_path) as rig:
        in_a_cluster(rig, scripted)
        leadership = rig.ctx.leadership
        leadership.know(0, JournalView(1, 20, (1, 2, 3), (1, 2), (2,)))
        leadership.know(7, JournalView(-1, 20, (2, 3), (2, 3), (2, 3)))
        assert await samples(rig, "cairn_isr_size") == ['{journal="0"} 2']
        assert await samples(rig, "cairn_out_of_sync_replicas") == ['{journal="0"} 2']
        assert await samples(rig, "cairn_offline_journals") == [" 1"]
        assert await samples(rig, "cairn_replica_lag_bytes") == [
            '{journal="1",replica="2"} 5',
            '{journal="1",replica="3"} 0',
        ]
        assert await samples(rig, "cairn_replica_lag_seconds") == [
            '{journal="1",replica="2"} 0.05',
            '{journal="1",replica="3"} 0.05',
        ]


@scenario
async def test_offsets_are_told_by_the_leader_alone(tmp_path: Path) -> None:
    """A sum over all brokers would count what followers hold too."""
    async with open_rig(tmp_path) as rig:
        await rig.create("orders")
        await rig.produce("orders", batch(b"x"))
        name = "kafka_topic_partition_current_offset"
        assert await samples(rig, name) == ['{topic="orders",partition="0"} 1']
        rig.ctx.leadership.lost(0)
        assert await samples(rig, name) == []


@scenario
async def test_partitions_without_a_replica_here(tmp_path: Path) -> None:
    """The metadata know who leads them; how much is in them only those brokers know."""
    async with open_rig(tmp_path) as rig:
        await rig.create("orders", partitions=2)
        await rig.produce("orders", batch(b"x"))
        async with open_web(rig) as web:
            alone = json.loads((await web.get("/api/v1/topics/orders"))[2])
        assert [sorted(row) for row in alone["partitions"]] == [
            ["bytes", "end", "partition", "queue_id", "start", "visible"]
        ] * 2
        in_a_cluster(rig, ScriptedCluster())
        rig.ctx.leadership.know(0, JournalView(2, 20, (1, 2), (1, 2)))
        away = rig.ctx.catalog.image.topics["orders"].queue_id(1)
        assert away is not None
        kept = rig.ctx.store.queues.pop(away)
        async with open_web(rig) as web:
            rows = json.loads((await web.get("/api/v1/topics/orders"))[2])["partitions"]
            (topic,) = json.loads((await web.get("/api/v1/topics"))[2])
        rig.ctx.store.queues[away] = kept
    assert [(row["partition"], row["visible"], row["leader"], row["replicas"]) for row in rows] == [
        (0, 1, 2, [1, 2]),
        (1, None, 2, [1, 2]),
    ]
    assert (topic["partitions"], topic["partitions_here"], topic["messages"]) == (2, 1, 1)
