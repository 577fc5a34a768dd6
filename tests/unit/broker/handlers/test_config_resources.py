"""ListConfigResources."""

from __future__ import annotations

from pathlib import Path

from cairnmq.errors import ErrorCode
from cairnmq.settings.alteration import ConfigChange
from cairnmq.wire.messages import ListConfigResourcesRequest
from unit.broker.rig import Rig, open_rig, scenario

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def listed(rig: Rig, *kinds: int) -> list[tuple[int, str]]:
    answer = await rig.ask(74, 1, ListConfigResourcesRequest(resource_types=list(kinds)))
    assert answer.error_code == 0
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


@scenario
async def test_what_has_settings(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("b")
        await rig.create("a")
        change = ConfigChange("consumer.session.timeout.ms", 0, "50000")
        assert await rig.ctx.catalog.alter_group_configs("g/1", [change]) is None
        assert await listed(rig) == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (GROUP, "g/1")]
        assert await listed(rig, GROUP, GROUP) == [(GROUP, "g/1")]
        assert await listed(rig, LOGGER, METRICS) == []


@scenario
async def test_version_0_asks_for_client_metrics(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answer = await rig.ask(74, 0, ListConfigResourcesRequest())
        assert (answer.error_code, answer.config_resources) == (0, [])


@scenario
async def test_a_type_that_nobody_knows(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(74, 1, ListConfigResourcesRequest(resource_types=[TOPIC, 77]))
        assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@scenario
async def test_every_live_broker_has_settings(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rig.join_cluster()
        answer = await rig.ask(74, 1, ListConfigResourcesRequest(resource_types=[4]))
        assert [each.resource_name for each in answer.config_resources] == ["1", "2", "3"]
