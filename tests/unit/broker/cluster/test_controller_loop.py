"""The controller's turn on one broker: elected if nobody is, decisions made in order, mistakes repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from cairnmq.broker.cluster.controller_loop import ControllerLoop
from cairnmq.replication.controller import PREFERRED_AFTER_MS
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, Proposal

ME, B = Member(1, 11), Member(2, 12)


class Ports:
    """A store of one journal, whose transactions can be refused."""

    def __init__(self) -> None:
        self.member: Member | None = ME
        self.elected: Member | None = None
        self.record = JournalRecord(7, (2, 1), B, 20, (B, ME))
        self.live = {1: 11, 2: 12}
        self.revision = 1
        self.last_epoch = 20
        self.refusals = 0
        self.failures = 0
        self.decided: list[Proposal] = []
        self.time_ms = 0

    def me(self) -> Member | None:
        return self.member

    def view(self) -> ClusterView:
        registered = {one.broker: BrokerRecord(one.broker, one.broker_epoch) for one in (ME, B)}
        kept = Kept(self.record, self.revision)
        return ClusterView(self.revision, self.last_epoch, {7: kept}, registered, dict(self.live))

    def controller(self) -> Member | None:
        return self.elected

    def now_ms(self) -> int:
        return self.time_ms

    async def elect_controller(self) -> bool:
        self.elected = ME
        return True

    async def decide(self, proposals: Sequence[Proposal]) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.decided += proposals
        self.record, self.last_epoch = proposals[0].record, proposals[0].new_epoch or self.last_epoch
        self.revision += 1
        return True

    async def reread(self) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("nobody foresaw this")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def run(ports: Ports, scene: Callable[[ControllerLoop], object]) -> None:
    async def play() -> None:
        loop = ControllerLoop(ports, ports.me, ports.now_ms)
        try:
            loop.look()
            await scene(loop)  # type: ignore[misc]
        finally:
            await loop.close()

    asyncio.run(play())


def test_it_is_elected_and_gives_a_journal_of_a_dead_leader_to_another() -> None:
    ports = Ports()

    async def scene(loop: ControllerLoop) -> None:
        await until(lambda: ports.elected == ME)
        assert ports.decided == [], "the leader is live"
        ports.live = {1: 11}
        loop.look()
        await until(lambda: bool(ports.decided))
        assert ports.record.leader == ME and ports.record.epoch == 21

    run(ports, scene)


def test_what_was_refused_is_decided_again() -> None:
    ports = Ports()
    ports.live, ports.refusals = {1: 11}, 3

    async def scene(loop: ControllerLoop) -> None:
        await until(lambda: bool(ports.decided))
        assert ports.refusals == 0 and len(ports.decided) == 1

    run(ports, scene)


def test_what_nobody_foresaw_does_not_end_its_turn() -> None:
    ports = Ports()
    ports.failures, ports.live = 1, {1: 11}

    async def scene(loop: ControllerLoop) -> None:
        await until(lambda: bool(ports.decided))
        assert ports.failures == 0

    run(ports, scene)


def test_without_a_session_or_beside_another_controller_it_decides_nothing() -> None:
    for member, elected in ((None, ME), (ME, B)):
        ports = Ports()
        ports.live, ports.member, ports.elected = {1: 11}, member, elected

        async def scene(loop: ControllerLoop) -> None:
            for _ in range(5):
                loop.look()
                await asyncio.sleep(0.01)
            assert ports.decided == []  # noqa: B023 - run within this turn

        run(ports, scene)


def test_leadership_goes_back_to_the_preferred_replica() -> None:
    ports = Ports()
    ports.elected, ports.record = ME, replace(ports.record, leader=ME)

    async def scene(loop: ControllerLoop) -> None:
        await asyncio.sleep(0.02)
        assert not ports.decided
        ports.time_ms = 2 * PREFERRED_AFTER_MS
        loop.look()
        await until(lambda: bool(ports.decided))
        assert ports.record.leader == B

    run(ports, scene)
