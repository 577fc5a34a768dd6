"""UpdateFeatures where there is nothing to finalize."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import UpdateFeaturesRequest
from unit.broker.rig import open_rig, scenario

UPDATE = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=2)


@pytest.mark.parametrize("version", [0, 1])
@scenario
async def test_each_feature_is_refused(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(57, version, UpdateFeaturesRequest(feature_updates=[UPDATE]))
        (result,) = answer.results
        assert (answer.error_code, result.feature) == (0, "transaction.version")
        assert result.error_code == ErrorCode.INVALID_UPDATE_VERSION and "transaction.version" in result.error_message


@scenario
async def test_version_2_has_one_error_for_all(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(57, 2, UpdateFeaturesRequest(feature_updates=[UPDATE], validate_only=True))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and "transaction.version" in answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_no_update_is_no_error(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(57, version, UpdateFeaturesRequest())
        assert (answer.error_code, answer.error_message, answer.results) == (0, None, [])
