"""Producers wait while the backlog is at its cap."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.storage_loop.backlog import Backlog
from cairnmq.storage.engine import Engine
from unit.broker.rig import open_rig, scenario
from unit.storage.cluster_harness import Machine, spec


def cap(engine: Engine, unsplit_bytes: int) -> None:
    engine.config = replace(engine.config, unsplit_bytes_max=unsplit_bytes)


@scenario
async def test_requests_resume_in_order_and_new_ones_queue_after_them(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        backlog, engine = rig.ctx.store.backlog, rig.ctx.store.engine
        assert not backlog.full
        cap(engine, 0)
        assert backlog.full
        resumed: list[int] = []
        full: list[bool] = []
        for number in range(3):
            backlog.when_room(lambda number=number: (resumed.append(number), full.append(backlog.full)))  # type: ignore[misc]
        backlog.give_room()
        assert resumed == []
        cap(engine, 1 << 30)
        assert backlog.full, "others wait"
        backlog.give_room()
        assert (resumed, full) == ([0, 1, 2], [True, True, False])


@scenario
async def test_journals_that_others_lead_keep_nobody_waiting() -> None:
    """Nor does one of their queues get anything here."""
    machine = Machine(1, [spec(1), spec(2), spec(3, 9)])
    backlog = Backlog(machine.engine)
    cap(machine.engine, 0)
    assert not backlog.full
    machine.lead(5, 9)
    assert backlog.full
    machine.engine.follow(9, "broker 2 leads")
    assert not backlog.full


@scenario
async def test_stopped_journal_lets_producers_go_on_to_be_refused(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        backlog, engine = rig.ctx.store.backlog, rig.ctx.store.engine
        cap(engine, 0)
        engine.paths[0].refuse("the disk is full")
        assert not backlog.full


class Producers:
    """Requests of producers, by what they write to."""

    def __init__(self) -> None:
        self.machine = Machine(1, [spec(1), spec(2), spec(3, 9)])
        self.backlog = Backlog(self.machine.engine)
        for epoch, journal in ((5, 4), (6, 9)):
            self.machine.lead(epoch, journal)
        self.resumed: list[str] = []

    def ask(self, name: str, *journals: int) -> bool:
        """Whether it has to wait."""
        waits = self.backlog.full and self.backlog.holds_up(journals)
        if waits:
            self.backlog.when_room(lambda: self.resumed.append(name), journals)
        return waits


def test_producers_of_a_journal_wait_for_its_followers_and_no_others() -> None:
    one = Producers()
    one.backlog.hold(4, [2])
    assert one.ask("a", 4) and not one.ask("b", 9)
    one.backlog.give_room()
    assert not one.resumed and one.backlog.waits_for_followers(4) and not one.backlog.waits_for_followers(9)
    one.backlog.hold(4, [])
    assert one.resumed == ["a"] and not one.backlog.waits_for_followers(4) and not one.ask("c", 4)


def test_batches_of_a_journal_keep_their_order_behind_a_request_for_two() -> None:
    one = Producers()
    one.backlog.hold(4, [2])
    assert one.ask("both", 4, 9) and one.ask("later", 9)
    one.backlog.give_room()
    assert not one.resumed
    one.backlog.hold(4, [])
    assert one.resumed == ["both", "later"]


def test_who_waits_for_the_own_splitter_does_not_wait_for_followers() -> None:
    one = Producers()
    one.backlog.hold(4, [2])
    assert one.ask("a", 4) and one.backlog.waits_for_followers(4)
    cap(one.machine.engine, 0)
    assert not one.backlog.waits_for_followers(4)
