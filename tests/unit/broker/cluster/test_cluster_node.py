"""Three brokers: what one writes the others have, and one of them takes over when the leader goes."""

from __future__ import annotations

from pathlib import Path

from unit.broker.cluster.rig import cluster
from unit.broker.rig import scenario, until


@scenario
async def test_what_is_acknowledged_is_on_every_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"a", b"b")
        assert b"b" in await rig.equal(journal)
        for one in rig.followers(journal):
            await until(lambda one=one: rig.queue(one).high_watermark == 2)


@scenario
async def test_a_dropped_leader_is_missed_before_its_session_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path, cairn_session_ms="600000") as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        await rig.produce(first, b"a")
        await rig.drop(first.number)
        second = await rig.leader(journal)
        await rig.produce(second, b"b")
        assert len(second.record(journal).isr) == 2
        again = await rig.start(first.number)
        await until(lambda: len(again.record(journal).isr) == 3)
        content = await rig.equal(journal)
        assert content.index(b"a") < content.index(b"b")
