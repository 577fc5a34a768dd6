"""The loops of all journals of a store."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_loops import JournalLoops
from cairnmq.storage.engine import Engine
from unit.broker.rig import scenario
from unit.storage.cluster_harness import Machine, spec
from unit.storage.replica_harness import NOW
from unit.storage.splitter_harness import Broker


def loops_of(engine: Engine) -> JournalLoops:
    return JournalLoops(engine, replace(MACHINE, wall_ms=lambda: NOW), lambda queues: None, lambda: None, lambda: None)


class Observer:
    """Hears nothing here."""

    def written(self, journal: int) -> None: ...

    def synced(self, journal: int, end: int) -> None: ...


@scenario
async def test_journals_of_one_node_have_threads_of_their_own_while_they_are_few() -> None:
    engine = Broker().engine
    loops = loops_of(engine)
    assert list(loops) == [0]
    path = engine.paths[0]
    engine.paths.update({number: path for number in (1, 2)})
    three = loops_of(engine)
    assert len({id(loop.threads) for loop in three.values()}) == 3
    engine.paths[3] = path
    four = loops_of(engine)
    assert len({id(loop.threads) for loop in four.values()}) == 1
    for each in (loops, three, four):
        each.close()


@scenario
async def test_who_observes_hears_of_journals_that_come_later() -> None:
    machine, observer = Machine(1, [spec(1)]), Observer()
    loops = loops_of(machine.engine)
    loops.observe(observer)
    machine.engine.host(11)
    assert loops.make(11) is loops[11] and loops[11].threads is loops[4].threads
    assert all(loop.observer is observer for loop in loops.values())
    loops.close()
