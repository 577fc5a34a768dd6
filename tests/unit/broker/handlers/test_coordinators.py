"""FindCoordinator, one key and many."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import FindCoordinatorRequest
from unit.broker.rig import open_rig, scenario

KEY = 10


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
