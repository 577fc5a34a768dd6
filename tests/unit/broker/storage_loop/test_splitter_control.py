"""The splitter as the broker drives it."""

from __future__ import annotations

import time
from pathlib import Path

from cairnmq.broker.http.status import Status
from unit.broker.rig import open_rig, scenario


@scenario
async def test_a_broker_without_a_splitter_is_not_ready(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        status = Status(time.monotonic)
        status.serve(rig.ctx)
        assert status.problems() == []
        rig.ctx.store.splitter.link.trouble = "splitter cannot be started: why"
        rig.ctx.store.splitter.begin(resume=True)
        assert status.problems() == ["splitter cannot be started: why"]
        assert status.storage()["splitter"]["state"] == "splitter cannot be started: why"
