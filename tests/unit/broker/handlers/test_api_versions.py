"""ApiVersions: exactly what is served, and nothing that clients would act upon without it being there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import API_VERSIONS, INTERNAL_FROM, KEEP_OFFSETS, SERVED
from cairnmq.wire.messages import ApiVersionsRequest
from unit.broker.rig import open_rig, scenario


@scenario
async def test_advertises_what_has_a_handler_and_nothing_else(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(API_VERSIONS, 0, ApiVersionsRequest())
        advertised = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert advertised == SERVED
        assert set(advertised) == {key for key in rig.ctx.router.routes if key < INTERNAL_FROM}
        assert KEEP_OFFSETS in rig.ctx.router.routes  # served, and nobody is told


@scenario
async def test_produce_is_advertised_from_0_and_telemetry_not_at_all(tmp_path: Path) -> None:
    """With min 3 old librdkafka sends lz4 data uncompressed; advertised telemetry keys make every client push."""
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(
            API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1")
        )
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert ranges[0] == (0, 13)
        assert not {71, 72} & set(ranges)


@scenario
async def test_a_client_that_looks_for_another_broker_is_sent_back_to_its_bootstrap_list(tmp_path: Path) -> None:
    """KIP-1242: an address that another cluster or broker has now. Who names no cluster yet is not asked."""
    async with open_rig(tmp_path) as rig:
        cluster, node = rig.ctx.node.cluster_id, rig.ctx.node.node_id

        async def ask(cluster_id: str | None, node_id: int, version: int = 5) -> int:
            request = ApiVersionsRequest(
                client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            answer = await rig.ask(API_VERSIONS, version, request)
            assert bool(answer.api_keys) == (answer.error_code == 0)
            return int(answer.error_code)

        assert await ask(cluster, node) == await ask(None, -1) == await ask(None, node + 1) == 0
        for wrong in ((cluster, node + 1), (cluster, -1), ("another", node), ("", -1)):
            assert await ask(*wrong) == ErrorCode.REBOOTSTRAP_REQUIRED
        assert await ask("another", 7, version=4) == 0, "it cannot say so"


@pytest.mark.parametrize("version", [3, 4])
@scenario
async def test_features(tmp_path: Path, version: int) -> None:
    """transaction.version 2 makes Java and franz-go leave AddPartitionsToTxn to the broker. Up to version 3 a feature
    whose lowest version is 0 must not be named as supported (KAFKA-17011)."""
    async with open_rig(tmp_path) as rig:
        request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.2.0")
        answer = await rig.ask(API_VERSIONS, version, request)
        supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
        assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])
        finalized = [(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features]
        assert finalized == [("transaction.version", 2, 2)]
        assert answer.finalized_features_epoch >= 0 and answer.error_code == 0


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a/b", "ä"])
@scenario
async def test_odd_client_names_are_invalid_since_version_3(tmp_path: Path, name: str) -> None:
    async with open_rig(tmp_path) as rig:
        asked = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert (await rig.ask(API_VERSIONS, 3, asked)).error_code == ErrorCode.INVALID_REQUEST
        assert (await rig.ask(API_VERSIONS, 2, asked)).error_code == 0
