"""What deleted topics leave: dropped, if need be later; nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from cairnmq.broker.coordination import offset_purge
from cairnmq.broker.coordination.offset_purge import OffsetPurge
from cairnmq.decision import KeyedRecord
from cairnmq.groups.offsets import Committed, OffsetKey, put
from unit.broker.rig import open_rig, scenario, until


@scenario
async def test_dropped_once_the_journal_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_purge, "RETRY_SECONDS", 0.01)
    async with open_rig(tmp_path) as rig:
        path = rig.ctx.store.engine.paths[0]
        kept = await rig.create("a")
        keys = [OffsetKey("g", topic_id, 0) for topic_id in (kept.topic_id, b"x" * 16)]
        await rig.facts.commit([put(key, Committed(2)) for key in keys])
        path.stopped = "planted"
        dropping = OffsetPurge(rig.facts, rig.coordinator.groups)
        dropping.start(rig.ctx.catalog.topic_ids)
        await until(lambda: rig.facts.is_idle)
        assert len(rig.coordinator.groups.offsets.topics("g")) == 2
        path.stopped = None
        await until(lambda: set(rig.coordinator.groups.offsets.topics("g")) == {kept.topic_id})
        dropping.close()


@scenario
async def test_what_comes_while_others_are_stored_is_dropped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as rig:
        facts, offsets = rig.facts, rig.coordinator.groups.offsets
        commit, held, go_on = facts.commit, asyncio.Event(), asyncio.Event()

        async def slow(what: Sequence[KeyedRecord]) -> None:
            held.set()
            await go_on.wait()
            await commit(what)

        dropping = OffsetPurge(rig.facts, rig.coordinator.groups)
        with monkeypatch.context() as patch:
            patch.setattr(facts, "commit", slow)
            dropping.start(rig.ctx.catalog.topic_ids)
            await held.wait()
            await commit([put(OffsetKey("g", b"x" * 16, 0), Committed(2))])
            dropping.start(rig.ctx.catalog.topic_ids)
            go_on.set()
            await until(lambda: not offsets.topics("g"))
        dropping.close()
