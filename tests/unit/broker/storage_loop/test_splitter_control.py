"""The splitter as the broker drives it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cairnmq.broker.http.status import Status
from cairnmq.broker.storage_loop import splitter_control
from cairnmq.broker.storage_loop.splitter_messages import Order, Ping, Pong
from cairnmq.errors import Fault
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


@scenario
async def test_what_the_splitter_has_done_is_known_when_it_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as rig:
        splitter, sent = rig.ctx.store.splitter, list[Order]()
        with monkeypatch.context() as patched:
            patched.setattr(splitter.link, "send", sent.append)
            first, second = (asyncio.ensure_future(splitter.settled()) for _ in range(2))
            await asyncio.sleep(0)
            assert sent == [Ping(1), Ping(2)]
            splitter.reports.take(Pong(2))
            await second
            assert not first.done()
            splitter.reports.take(Pong(1))
            await first
            splitter.reports.take(Pong(1))  # late, and nobody waits for it
            assert not splitter.reports.pings
            patched.setattr(splitter_control, "PING_SECONDS", 0.01)
            with pytest.raises(Fault, match="does not say"):
                await splitter.settled()
