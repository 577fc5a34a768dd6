"""Coordinators are loaded when nothing that they act on can be taken back, and go with the leadership."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from cairnmq.broker.cluster.led_coordinators import LedCoordinators
from cairnmq.types import Slots
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, B, C, Desk
from unit.broker.rig import scenario, until


class Told:
    """The coordinators, and the catalog that knows of slots."""

    def __init__(self) -> None:
        self.image = SimpleNamespace(slots=None)
        self.told: list[tuple[object, ...]] = []

    def lead(self, journal: int, epoch: int, keyed: object, unclean_epoch: int) -> None:
        self.told.append(("lead", journal, epoch))

    def drop(self, journal: int) -> None:
        self.told.append(("drop", journal))


@scenario
async def test_they_are_loaded_once_ready_and_with_slots() -> None:
    async with Desk() as desk:
        told = Told()
        led = LedCoordinators(cast(Any, told), cast(Any, told), desk.store)
        led.look(desk.replica)
        told.image.slots = Slots(3, 1, (JOURNAL, 9))
        led.look(desk.replica)
        assert desk.store.slots is told.image.slots and not told.told, "another broker leads"
        await desk.lead()
        led.look(desk.replica)
        assert not told.told, "what earlier leaders wrote may still be taken back"
        desk.asked(B)
        desk.asked(C)
        await until(lambda: desk.replica.is_settled)
        told.image.slots = None
        led.look(desk.replica)
        assert not told.told, "there is nothing to coordinate yet"
        told.image.slots = Slots(3, 1, (JOURNAL, 9))
        led.look(desk.replica)
        led.look(desk.replica)
        assert told.told == [("lead", JOURNAL, 20)], "once"
        led.lost(JOURNAL)
        assert told.told[1:] == [("drop", JOURNAL)]
        desk.see(replace(RECORD, leader=B, epoch=21))
        await until(lambda: "follows 2" in desk.told)
        led.look(desk.replica)
        await desk.lead(replace(RECORD, epoch=22))
        led.look(desk.replica)
        assert len(told.told) == 2
        desk.asked(B)
        desk.asked(C)
        await until(lambda: desk.replica.is_settled)
        led.look(desk.replica)
        assert told.told[2:] == [("lead", JOURNAL, 22)]


@scenario
async def test_journals_without_slots_have_no_coordinator() -> None:
    async with Desk() as desk:
        told = Told()
        told.image.slots = Slots(3, 1, (9,))
        led = LedCoordinators(cast(Any, told), cast(Any, told), desk.store)
        await desk.lead(replace(RECORD, isr=(RECORD.isr[0],)))
        await until(lambda: desk.replica.is_ready)
        led.look(desk.replica)
        assert not told.told
