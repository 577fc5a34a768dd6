"""Client quotas: stored, described back, kept over a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from unit.broker.rig import Rig, open_rig, scenario

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]


async def alter(
    rig: Rig, *entries: tuple[Entity, dict[str, float | None]], version: int = 1, validate_only: bool = False
) -> list[int]:
    rows = [
        AlterClientQuotasRequest.EntryData(
            entity=[
                AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ],
            ops=[
                AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )
        for entity, values in entries
    ]
    answer = await rig.ask(49, version, AlterClientQuotasRequest(entries=rows, validate_only=validate_only))
    assert [{part.entity_type: part.entity_name for part in each.entity} for each in answer.entries] == [
        entity for entity, _ in entries
    ]
    assert all((each.error_code == 0) == (each.error_message is None) for each in answer.entries)
    return [each.error_code for each in answer.entries]


async def describe(rig: Rig, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    rows = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    answer = await rig.ask(48, version, DescribeClientQuotasRequest(components=rows, strict=strict))
    if answer.error_code:
        assert answer.entries == [] and answer.error_message
        return answer.error_code
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
@scenario
async def test_set_described_removed_and_kept(tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture) -> None:
    entity: Entity = {"user": "a/b,c", "client-id": None}
    async with open_rig(tmp_path) as rig:
        values: dict[str, float | None] = {"producer_byte_rate": 1024.0, "request_percentage": 0.5}
        with caplog.at_level(logging.WARNING):
            assert await alter(rig, (entity, values), version=version) == [0]
        assert "not enforce" in caplog.text
        assert await describe(rig, version=version) == [(entity, values)]
    async with open_rig(tmp_path) as rig:
        assert await describe(rig, version=version) == [(entity, values)]
        assert await alter(rig, (entity, {"producer_byte_rate": None}), version=version) == [0]
        assert await describe(rig, version=version) == [(entity, {"request_percentage": 0.5})]
        assert await alter(rig, (entity, {"request_percentage": None}), version=version) == [0]
        assert await describe(rig, version=version) == []


@scenario
async def test_one_bad_entry_does_not_stop_the_others(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        codes = await alter(
            rig, ({"user": "a"}, {"producer_byte_rate": 1.0}), ({"planet": "b"}, {"producer_byte_rate": 1.0})
        )
        assert codes == [0, ErrorCode.INVALID_REQUEST]
        assert await describe(rig) == [({"user": "a"}, {"producer_byte_rate": 1.0})]


@scenario
async def test_validation_changes_nothing(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        assert await alter(rig, ({"user": "a"}, {"producer_byte_rate": 1.0}), validate_only=True) == [0]
        assert await alter(rig, ({"user": "a"}, {"producer_byte_rate": -1.0}), validate_only=True) == [42]
        assert await describe(rig) == []


@scenario
async def test_filters(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rate: dict[str, float | None] = {"consumer_byte_rate": 1.0}
        entities: list[Entity] = [{"user": "a"}, {"user": None}, {"user": "a", "client-id": "c"}, {"client-id": "c"}]
        assert await alter(rig, *((entity, rate) for entity in entities)) == [0] * 4
        assert await alter(rig, ({"ip": "10.0.0.1"}, {"connection_creation_rate": 3.0})) == [0]

        async def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Entity]:
            return [entity for entity, _ in await describe(rig, *components, strict=strict)]

        assert await found(("user", EXACT, "a")) == [entities[0], entities[2]]
        assert await found(("user", EXACT, "a"), strict=True) == [entities[0]]
        assert await found(("user", DEFAULT, None)) == [entities[1]]
        assert await found(("user", ANY, None), ("client-id", ANY, None)) == [entities[2]]
        assert await found(("ip", ANY, None)) == [{"ip": "10.0.0.1"}]
        assert len(await found()) == 5 and await found(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@scenario
async def test_filters_that_mean_nothing(
    tmp_path: Path, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    async with open_rig(tmp_path) as rig:
        assert await describe(rig, *components) == code
