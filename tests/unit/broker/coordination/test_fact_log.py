"""Durable first, applied second, in the order of submission."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from cairnmq.broker.coordination.fact_log import FactLog, Stored
from cairnmq.decision import KeyedRecord
from cairnmq.errors import Fault
from unit.broker.rig import scenario


def fact(name: str) -> KeyedRecord:
    return "offset", name.encode(), b""


class Journal:
    """Writes complete when, and in the order in which, the test says."""

    def __init__(self) -> None:
        self.writes: list[Stored] = []

    def put(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        self.writes.append(stored)


@scenario
async def test_nothing_is_applied_before_it_is_durable() -> None:
    journal, applied = Journal(), []
    log = FactLog(journal.put, applied.append)
    commit = asyncio.create_task(log.commit([fact("a")]))
    await asyncio.sleep(0)
    assert applied == []
    journal.writes[0](None)
    await commit
    assert applied == [fact("a")]


@scenario
async def test_order_is_that_of_submission_not_of_completion() -> None:
    """Two commits of one key: memory must end with what replay ends with."""
    journal, applied = Journal(), []
    log = FactLog(journal.put, applied.append)
    first = asyncio.create_task(log.commit([fact("a")]))
    second = asyncio.create_task(log.commit([fact("b")]))
    await asyncio.sleep(0)
    journal.writes[1](None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert applied == [] and not second.done()
    journal.writes[0](None)
    await asyncio.gather(first, second)
    assert applied == [fact("a"), fact("b")]


@scenario
async def test_a_failed_write_is_told_not_applied_and_does_not_block_others() -> None:
    journal, applied = Journal(), []
    log = FactLog(journal.put, applied.append)
    first = asyncio.create_task(log.commit([fact("a")]))
    second = asyncio.create_task(log.commit([fact("b")]))
    await asyncio.sleep(0)
    journal.writes[1](None)
    journal.writes[0](Fault("the disk is full"))
    with pytest.raises(Fault, match="full"):
        await first
    await second
    assert applied == [fact("b")]


@scenario
async def test_no_facts_are_no_write() -> None:
    journal = Journal()
    await FactLog(journal.put, lambda fact: None).commit([])
    assert journal.writes == []


@scenario
async def test_facts_that_could_not_be_stored_leave_no_frames_behind() -> None:
    """While a disk is full many fail, and the collector, which is off here, comes rarely."""
    journal = Journal()
    log = FactLog(journal.put, lambda fact: None)

    async def fail() -> None:
        commit = asyncio.create_task(log.commit([fact("a")]))
        await asyncio.sleep(0)
        journal.writes.pop()(Fault("no room"))
        await asyncio.wait([commit])
        assert isinstance(commit.exception(), Fault)  # not raised: this frame would be in it

    def faults() -> list[Fault]:
        return [one for one in gc.get_objects() if isinstance(one, Fault)]

    gc.collect()
    gc.disable()
    try:
        before = faults()  # of other tests in this process
        await fail()
        await asyncio.sleep(0)
        assert all(any(one is old for old in before) for one in faults())
    finally:
        gc.enable()


@scenario
async def test_slots_do_not_wait_for_one_another() -> None:
    journal, applied = Journal(), []
    log = FactLog(journal.put, applied.append, lambda one: one[1][0])
    one, other = fact("a"), fact("b")
    commit = asyncio.create_task(log.commit([one, other, one]))
    await asyncio.sleep(0)
    assert len(journal.writes) == 2, "facts of one slot together"
    journal.writes[1](None)
    assert applied == [other] and not log.is_idle and not commit.done()
    journal.writes[0](Fault("no room"))
    with pytest.raises(Fault):
        await commit
    assert applied == [other] and log.is_idle
