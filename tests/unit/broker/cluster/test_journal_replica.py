"""The replica of one journal: its roles on real storage, and what becomes of its proposals."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from cairnmq.broker.cluster import journal_replica
from cairnmq.replication.records import Member, PublishedEnd
from unit.broker.cluster.replica_rig import ME, OTHER, THIRD, OneReplica, record, view
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


@scenario
async def test_each_life_tells_how_far_it_reaches(tmp_path: Path) -> None:
    """A registration begins with no ends, and an election may wait for that of this replica."""
    one = OneReplica(tmp_path)
    one.see(record(None, 2, Member(1, 5), OTHER))
    await until(lambda: one.ports.published)
    one.ports.member = Member(1, 21)
    one.replica.see(one.kept)
    await until(lambda: len(one.ports.published) == 2)
    assert one.ports.published == [PublishedEnd(2, 0, 0)] * 2
    await one.close()


@scenario
async def test_a_head_that_was_written_too_late_is_of_its_own_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.05)
    one = OneReplica(tmp_path)
    loop = one.replica.state.loop
    disk_moves = threading.Event()
    loop.threads.write.submit(disk_moves.wait)
    loop._threaded_until = float("inf")
    one.see(record(ME, 5, ME, OTHER))
    await until(lambda: one.ports.proposed)
    proposal, made = one.ports.proposed[0]
    assert proposal.record.leader is None and proposal.record.resigned == 1
    one.see(proposal.record)
    made.set_result(True)
    disk_moves.set()
    await until(lambda: one.ports.published)
    end = one.replica.state.path.journal.end
    assert end > 0 and one.ports.published == [PublishedEnd(5, 5, end)]
    assert one.replica.state.history.starts() == [(5, 0)]
    await one.close()


@scenario
async def test_what_nobody_foresaw_does_not_end_the_changes_of_roles(tmp_path: Path) -> None:
    one = OneReplica(tmp_path)
    publish, failures = one.ports.publish, 1

    async def fail_once(journal: int, end: PublishedEnd) -> bool:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError
        return await publish(journal, end)

    one.ports.publish = fail_once  # type: ignore[method-assign]
    one.see(record(None, 2, Member(1, 5), OTHER))
    await until(lambda: one.ports.published)
    await one.close()


@scenario
async def test_one_that_is_elected_and_cannot_lead_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would be elected: its session is alive."""
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.05)
    one = OneReplica(tmp_path)
    one.replica.state.path.refuse("the disk is full")
    one.see(record(ME, 5, ME, OTHER))
    await until(lambda: one.ports.proposed)
    proposal, made = one.ports.proposed[0]
    assert (proposal.record.leader, proposal.record.resigned, proposal.expect) == (None, 1, one.kept.revision)
    made.set_result(True)
    one.replica.state.path.resume()
    await until(lambda: one.replica.leader)
    await one.close()
