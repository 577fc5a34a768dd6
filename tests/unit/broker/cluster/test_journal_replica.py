"""The replica of one journal: its roles on real storage, and what becomes of its proposals."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from unit.broker.cluster.replica_rig import ME, OTHER, THIRD, OneReplica, view
from unit.broker.rig import scenario, until


@scenario
async def test_the_end_of_one_proposal_is_not_taken_for_that_of_the_next(tmp_path: Path) -> None:
    """Else a member that may be in the ISR would not count, and could be elected without what was acknowledged."""
    one = OneReplica(tmp_path)
    replica, ports = one.replica, one.ports
    await one.lead(5)
    everybody = view(one.kept, ME, OTHER, THIRD)
    one.hear(OTHER, OTHER, THIRD)
    one.hear(THIRD, OTHER, THIRD)
    ports.holds_looks = True
    replica.look_after(everybody)
    await until(lambda: len(ports.proposed) == 1)
    first, made = ports.proposed[0]
    one.see(first.record)
    made.set_result(True)
    await until(lambda: ports.looks)
    replica.look_after(view(one.kept, ME, OTHER, THIRD))
    await until(lambda: len(ports.proposed) == 2)
    assert replica.leader is not None and replica.leader.members() == {ME, OTHER, THIRD}
    ports.looks[0].set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert replica.leader.members() == {ME, OTHER, THIRD}, "the second change may be made any moment"
    ports.proposed[1][1].set_result(False)
    await until(lambda: len(ports.looks) == 2)
    ports.looks[1].set_result(None)
    await until(lambda: not replica.leader.in_flight)
    assert replica.leader.members() == {ME, OTHER}
    await one.close()
