"""UpdateFeatures where every level is fixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import UpdateFeaturesRequest
from unit.broker.rig import open_rig, scenario

UPDATE = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=1)


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_one_error_for_all_as_kafka_answers(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(57, version, UpdateFeaturesRequest(feature_updates=[UPDATE]))
        assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert "transaction.version is fixed at 2" in answer.error_message
        nope = UpdateFeaturesRequest.FeatureUpdateKey(feature="nope", max_version_level=1)
        answer = await rig.ask(57, version, UpdateFeaturesRequest(feature_updates=[nope]))
        assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_no_update_is_no_error(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        same = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=2)
        for updates in ([], [same]):
            answer = await rig.ask(57, version, UpdateFeaturesRequest(feature_updates=updates))
            assert (answer.error_code, answer.error_message, answer.results) == (0, None, [])
