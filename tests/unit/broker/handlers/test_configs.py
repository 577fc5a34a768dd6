"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.storage_loop.splitter_messages import Expiration
from cairnmq.errors import ErrorCode
from cairnmq.settings.broker_table import BROKER as SETTINGS
from cairnmq.settings.broker_table import FORMER_NAMES
from cairnmq.wire.messages import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from unit.broker.rig import Rig, batch, open_rig, scenario

DESCRIBE, REPLACE, ALTER = 32, 33, 44
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(
    rig: Rig, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **flags: bool
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    answer = await rig.ask(DESCRIBE, version, DescribeConfigsRequest(resources=[resource], **flags))
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def alter(
    rig: Rig, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False, version: int = 1
) -> Any:
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await rig.ask(ALTER, version, request)).responses
    assert (result.error_code == 0) == (result.error_message is None)
    return result.error_code


@pytest.mark.parametrize("version", range(1, 5))
@scenario
async def test_a_topic_s_settings(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", retention_ms="1000")
        result = await describe(rig, TOPIC, "a", version=version)
        assert (result.error_code, result.error_message) == (0, None)
        rows = {row.name: row for row in result.configs}
        assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("1000", 1)
        assert (rows["cleanup.policy"].value, rows["cleanup.policy"].config_source) == ("delete", 5)
        assert len(rows) > 20
        assert all(1 <= row.config_source <= 6 for row in result.configs)
        assert all(row.synonyms == [] for row in result.configs)
        if version >= 3:
            assert all(row.documentation is None and row.config_type > 0 for row in result.configs)


@scenario
async def test_only_what_was_asked_for(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        result = await describe(rig, TOPIC, "a", ["retention.ms", "no.such"])
        assert [row.name for row in result.configs] == ["retention.ms"]
        assert len((await describe(rig, TOPIC, "a", [])).configs) > 20


@scenario
async def test_synonyms_and_documentation_on_request(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"log.retention.hours": "1"}) as rig:
        await rig.create("a", retention_ms="1000")
        result = await describe(rig, TOPIC, "a", ["retention.ms"], include_synonyms=True, include_documentation=True)
        (row,) = result.configs
        assert [(s.name, s.source) for s in row.synonyms][0] == ("retention.ms", 1)
        assert ("log.retention.hours", 4) in [(s.name, s.source) for s in row.synonyms]
        assert row.documentation and row.config_type == 5


@scenario
async def test_a_broker_s_settings(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"num.partitions": "3"}) as rig:
        rows = {row.name: row for row in (await describe(rig, BROKER, "1")).configs}
        assert (rows["num.partitions"].value, rows["num.partitions"].config_source) == ("3", 4)
        assert rows["num.partitions"].read_only and not rows["cairn.split.enable"].read_only
        assert (await describe(rig, BROKER, "")).configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
    ],
)
@scenario
async def test_what_has_no_settings(tmp_path: Path, kind: int, name: str, code: ErrorCode) -> None:
    async with open_rig(tmp_path) as rig:
        result = await describe(rig, kind, name)
        assert (result.error_code, result.configs) == (code, []) and result.error_message


@pytest.mark.parametrize("version", [0, 1])
@scenario
async def test_a_changed_topic_setting_holds_at_once_and_after_a_restart(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        assert await alter(rig, TOPIC, "a", ("max.message.bytes", SET, "100"), version=version) == 0
        assert [rig.queue("a", index).config.max_message_bytes for index in (0, 1)] == [100, 100]
    async with open_rig(tmp_path) as rig:
        assert rig.queue("a").config.max_message_bytes == 100
        assert await alter(rig, TOPIC, "a", ("max.message.bytes", REMOVE, None)) == 0
        assert rig.queue("a").config.max_message_bytes == 1_048_588


@scenario
async def test_validation_changes_nothing(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await alter(rig, TOPIC, "a", ("retention.ms", SET, "5"), validate_only=True) == 0
        assert await alter(rig, TOPIC, "a", ("retention.ms", SET, "x"), validate_only=True) == 40
        assert rig.queue("a").config.retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "forget")], ErrorCode.INVALID_CONFIG),
    ],
)
@scenario
async def test_refused_changes(tmp_path: Path, changes: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        assert await alter(rig, TOPIC, "a", *changes) == code
        assert rig.ctx.catalog.image.topic("a") == topic


@scenario
async def test_changes_of_what_does_not_exist(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        change = ("retention.ms", SET, "1")
        assert await alter(rig, TOPIC, "none", change) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(rig, TOPIC, "a b", change) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await alter(rig, BROKER, "2", change) == ErrorCode.INVALID_REQUEST
        assert await alter(rig, GROUP, "", change) == ErrorCode.INVALID_REQUEST
        assert await alter(rig, LOGGER, "1", change) == ErrorCode.INVALID_REQUEST


@scenario
async def test_a_resource_named_twice(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="a")
        answer = await rig.ask(ALTER, 1, IncrementalAlterConfigsRequest(resources=[resource, resource]))
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("name", ["1", ""])
@scenario
async def test_a_broker_s_dynamic_setting_reaches_every_topic_that_does_not_set_it(tmp_path: Path, name: str) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("default")
        await rig.create("own", retention_ms="7")
        assert await alter(rig, BROKER, name, ("log.retention.ms", SET, "5000")) == 0
        assert rig.queue("default").config.retention_ms == 5000
        assert rig.queue("own").config.retention_ms == 7
        await rig.create("later")
        assert rig.queue("later").config.retention_ms == 5000
        row = {r.name: r for r in (await describe(rig, BROKER, name)).configs}["log.retention.ms"]
        assert (row.value, row.config_source) == ("5000", 2 if name else 3)
    async with open_rig(tmp_path) as rig:
        assert rig.queue("default").config.retention_ms == 5000
        assert await alter(rig, BROKER, name, ("log.retention.ms", REMOVE, None)) == 0
        assert rig.queue("default").config.retention_ms == 604_800_000


@pytest.mark.parametrize(
    "name, low, high",
    [("cairn.unsplit.bytes.max", str(64 << 10), str(1 << 20)), ("cairn.unsplit.entries.max", "1", "5")],
)
@scenario
async def test_who_waits_for_the_splitter_goes_on_when_it_may_be_further_behind(
    tmp_path: Path, name: str, low: str, high: str
) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await alter(rig, BROKER, "1", (name, SET, low)) == 0
        assert (await rig.produce("a", batch(bytes(70_000)))).error_code == 0
        waits = asyncio.create_task(rig.produce("a", batch(b"next")))
        await asyncio.sleep(0.05)
        assert rig.ctx.store.backlog.full and not waits.done(), "the new cap holds at once"
        assert await alter(rig, BROKER, "1", (name, SET, high)) == 0
        assert (await waits).base_offset == 1


@scenario
async def test_storage_hears_of_other_settings_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        store, sent = rig.ctx.store, []
        monkeypatch.setattr(store.splitter.link, "send", sent.append)
        assert await alter(rig, BROKER, "1", ("cairn.journal.retention.bytes", SET, "777")) == 0
        assert store.engine.config.retain_bytes == 777
        assert await alter(rig, BROKER, "1", ("producer.id.expiration.ms", SET, "5000")) == 0
        assert sent == [Expiration(5000)], "the splitter forgets producers too"


@scenario
async def test_what_needs_a_restart_cannot_be_changed(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        assert await alter(rig, BROKER, "1", ("num.partitions", SET, "5")) == ErrorCode.INVALID_REQUEST
        assert rig.ctx.config.num_partitions == 1


@pytest.mark.parametrize("whole", [True, False])
@scenario
async def test_a_broker_s_setting_that_nobody_knows_is_kept(
    tmp_path: Path, whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """kafkajs's own tests send `cleanup.policy` for a broker, and Kafka takes it."""
    async with open_rig(tmp_path) as rig:
        if whole:
            assert await replace(rig, BROKER, "1", {"cleanup.policy": "delete"}, version=1) == 0
        else:
            assert await alter(rig, BROKER, "1", ("cleanup.policy", SET, "delete")) == 0
        assert "cleanup.policy is stored but has no effect here; did you mean log.cleanup.policy?" in caplog.text
    async with open_rig(tmp_path) as rig:
        (row,) = (await describe(rig, BROKER, "1", ["cleanup.policy"], include_synonyms=True)).configs
        assert (row.value, row.is_sensitive, row.read_only, row.config_source) == (None, True, True, 2)
        assert await replace(rig, BROKER, "1", {}, version=1) == 0
        assert (await describe(rig, BROKER, "1", ["cleanup.policy"])).configs == []


@scenario
async def test_a_group_s_settings(tmp_path: Path) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    async with open_rig(tmp_path) as rig:
        rows = {row.name: row for row in (await describe(rig, GROUP, "g")).configs}
        assert {name: (row.value, row.config_source) for name, row in rows.items()} == {
            session: ("45000", 5),
            heartbeat: ("5000", 5),
        }
        assert await alter(rig, GROUP, "g", (session, SET, "50000")) == 0
        assert await alter(rig, GROUP, "g", (session, SET, "1")) == ErrorCode.INVALID_CONFIG
        assert await alter(rig, GROUP, "g", ("retention.ms", SET, "1")) == ErrorCode.INVALID_CONFIG
        assert await alter(rig, GROUP, "g", ("share.session.timeout.ms", SET, "45000")) == ErrorCode.INVALID_CONFIG
    async with open_rig(tmp_path) as rig:
        (row,) = (await describe(rig, GROUP, "g", [session], include_synonyms=True)).configs
        assert (row.value, row.config_source, row.read_only) == ("50000", 8, False)
        assert [(s.value, s.source) for s in row.synonyms] == [("50000", 8), ("45000", 5)]
        assert (await describe(rig, GROUP, "other", [session])).configs[0].value == "45000"
        assert await alter(rig, GROUP, "g", (session, REMOVE, None)) == 0
        assert rig.ctx.catalog.image.group_configs == {}


async def replace(
    rig: Rig, kind: int, name: str, configs: dict[str, str | None], *, version: int = 2, validate_only: bool = False
) -> Any:
    rows = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await rig.ask(REPLACE, version, request)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_code == 0) == (result.error_message is None)
    return result.error_code


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_what_is_not_sent_goes_back_to_its_default(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", retention_ms="1000", max_message_bytes="100")
        assert await replace(rig, TOPIC, "a", {"retention.ms": "2000"}, version=version) == 0
        config = rig.queue("a").config
        assert (config.retention_ms, config.max_message_bytes) == (2000, 1_048_588)
        assert await alter(rig, BROKER, "1", ("log.retention.ms", SET, "7")) == 0
        assert await replace(rig, BROKER, "1", {"max.connections": "5"}, version=version) == 0
        assert rig.ctx.catalog.image.dynamic_configs(1) == {"max.connections": "5"}
        assert await alter(rig, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
        assert await replace(rig, GROUP, "g", {}, version=version) == 0
        assert rig.ctx.catalog.image.group_configs == {}


@scenario
async def test_refused_replacements_change_nothing(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a", retention_ms="1000")
        assert await replace(rig, TOPIC, "a", {"max.message.bytes": "1"}, validate_only=True) == 0
        assert await replace(rig, TOPIC, "a", {"max.message.bytes": "x"}) == ErrorCode.INVALID_CONFIG
        assert await replace(rig, TOPIC, "a", {"max.message.bytes": None}) == ErrorCode.INVALID_REQUEST
        assert await replace(rig, TOPIC, "none", {}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await replace(rig, LOGGER, "1", {}) == ErrorCode.INVALID_REQUEST
        twice = AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="a")
        answer = await rig.ask(REPLACE, 2, AlterConfigsRequest(resources=[twice, twice]))
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert rig.ctx.catalog.image.topic("a") == topic


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
@scenario
async def test_former_name_of_a_setting(tmp_path: Path, former: str, name: str) -> None:
    async with open_rig(tmp_path, {former: "6000"}) as rig:
        expected = 0 if SETTINGS[name].dynamic else ErrorCode.INVALID_REQUEST
        assert await alter(rig, BROKER, "1", (former, SET, "7000")) == expected
        wanted = "6000" if expected else "7000"
        for key in (former, name):
            (row,) = (await describe(rig, BROKER, "1", [key])).configs
            assert (row.name, row.value) == (name, wanted)
        rows = (await describe(rig, BROKER, "1")).configs
        assert [row.name for row in rows if row.name in (former, name)] == [name]
        if not expected:
            assert await alter(rig, BROKER, "1", (former, SET, "1"), (name, SET, "2")) == ErrorCode.INVALID_REQUEST
            assert await alter(rig, BROKER, "1", (former, REMOVE, None)) == 0
            (row,) = (await describe(rig, BROKER, "1", [name])).configs
            assert row.value == "6000"
            assert await replace(rig, BROKER, "1", {former: "8000"}, version=1) == 0
            (row,) = (await describe(rig, BROKER, "1", [name])).configs
            assert row.value == "8000"


@scenario
async def test_another_brokers_settings_go_through_the_store(tmp_path: Path) -> None:
    """It applies them itself. What it was started with, only that broker knows, so it is not told here."""
    async with open_rig(tmp_path) as rig:
        assert await alter(rig, BROKER, "2", ("log.retention.ms", SET, "5000")) == ErrorCode.INVALID_REQUEST
        rig.join_cluster()
        before = (await describe(rig, BROKER, "1", ["log.retention.ms"])).configs
        assert await alter(rig, BROKER, "2", ("log.retention.ms", SET, "5000")) == 0
        assert await alter(rig, BROKER, "", ("log.segment.bytes", SET, "2000000")) == 0
        told = await describe(rig, BROKER, "2")
        assert {row.name: row.value for row in told.configs} == {
            "log.retention.ms": "5000",
            "log.segment.bytes": "2000000",
        }
        assert (await describe(rig, BROKER, "1", ["log.retention.ms"])).configs == before
        assert (await describe(rig, BROKER, "9")).error_code == ErrorCode.INVALID_REQUEST
