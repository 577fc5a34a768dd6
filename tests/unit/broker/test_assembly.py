"""A broker that is put together: all there from the beginning, and nothing replaced from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.settings.alteration import ConfigChange, Operation
from unit.broker.rig import open_rig, scenario


@scenario
async def test_parts_cannot_be_replaced(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        for value, name in ((rig.broker, "ctx"), (rig.ctx, "store"), (rig.ctx, "config"), (rig.ctx, "clock")):
            with pytest.raises(AttributeError):
                setattr(value, name, None)


@scenario
async def test_settings_that_change_reach_every_part(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        limit = ConfigChange("cairn.unsplit.bytes.max", Operation.SET, "70000")
        assert await rig.ctx.catalog.alter_broker_configs(None, [limit]) is None
        assert rig.ctx.config.cairn_unsplit_bytes_max == 70_000
        assert rig.ctx.store.engine.config.unsplit_bytes_max == 70_000
        assert [one.cairn_unsplit_bytes_max for one in rig.configs] == [70_000], "who else wants to know hears of it"


@scenario
async def test_a_broker_that_was_never_started_ends(tmp_path: Path) -> None:
    """As when a part cannot start: what was opened is closed, and the next one finds everything."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.broker.close()
    async with open_rig(tmp_path) as rig:
        assert rig.ctx.catalog.image.topic("a") is not None
