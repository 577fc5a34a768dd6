"""Power cuts of one, two and all brokers of a cluster under load: each broker's disk forgets for itself.

The metadata file lies outside, on a disk that keeps everything. When all brokers lose power at once it may be on a
machine that does too: then it is cut with them.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random

import psutil

from broker_process import wait_until
from chaos.forgetful_mount import ForgetfulMount, forgetful_mount
from chaos.promises import Line
from cluster.account import accounted
from cluster.brokers import BROKERS, Cluster
from cluster.cut_world import GOES_ON_SECONDS, CutWorld
from cluster.lines import LINES
from crash.ledger import Place

ROUNDS = 10


class Disks:
    """One for each broker, and one for the metadata file."""

    def __init__(self, directory: Path, stack: ExitStack, lies_about: str = "") -> None:
        mounted = [
            stack.enter_context(forgetful_mount(directory / f"disk{node}", lies_about))
            for node in range(1, BROKERS + 1)
        ]
        self.of: dict[int, ForgetfulMount] = dict(enumerate(mounted, 1))
        self.metadata = stack.enter_context(forgetful_mount(directory / "disk-of-metadata"))


class PowerCuts:
    """Rounds of load and loss; after each all is judged."""

    def __init__(self, cluster: Cluster, disks: Disks, rng: Random, tally: Counter[str]) -> None:
        self.cluster = cluster
        self.disks = disks
        self.rng = rng
        self.tally = tally
        self.world: CutWorld | None = None
        self.first = 0.0
        self.lost: dict[Place, float] = {}
        self.powered: set[int] = set()
        self.shapes: dict[str, Callable[[CutWorld], None]] = {
            "one broker": self.one,
            "the leader": self.leader,
            "two brokers": self.two,
            "one after the other": self.rolling,
            "all brokers": self.all,
            "all brokers after a while": self.all_late,
            "all brokers at rest": self.all_idle,
            "one, and then all": self.staggered,
            "two, and then the third": self.staggered_two,
            "all that are in sync": self.in_sync,
            "all while leaders change": self.changing,
            "all while they stop": self.stopping,
        }

    # What happens to machines

    def cut(self, nodes: Collection[int]) -> None:
        """At once. What their readers and writers know is kept; their disks forget."""
        self.first = self.first or time.monotonic()
        if self.world is not None and len(nodes) < BROKERS:
            self.world.fails_over()
        self._end(nodes)
        self.powered -= {*nodes}
        risked = [self.disks.of[node].cut(self.rng.getrandbits(32)) for node in nodes]
        if len(nodes) == BROKERS and self.rng.random() < 0.5:
            risked.append(self.disks.metadata.cut(self.rng.getrandbits(32)))
            self.tally["power cuts of the metadata file too"] += 1
        self.tally[f"power cuts of {('one broker', 'two brokers', 'all brokers')[len(nodes) - 1]}"] += 1
        self.tally["power cuts"] += 1
        self.tally["files that were not synced at a cut"] += sum(each.files for each in risked)
        self.tally["names that were not synced at a cut"] += sum(each.names for each in risked)
        self._note_losses()

    def _end(self, nodes: Collection[int]) -> None:
        brokers = [self.cluster.brokers[node] for node in nodes if self.cluster.brokers[node].running]
        members = [member for broker in brokers for member in broker.tree()]
        for member in members:  # none is to see another one die
            with suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGSTOP)
        for node in nodes:
            if self.cluster.brokers[node].running:
                self.cluster.kill(node)

    def _note_losses(self) -> None:
        """Whose in-sync replicas have all lost power since the round began: nobody can join or lead before one of
        them is back, so the metadata still say who they are."""
        world = self.world
        if world is None:
            return
        isr = self.cluster.stored_isr() if self.powered else {}
        for place in world.places:
            if not self.powered & isr.get(place, set()):
                self.lost.setdefault(place, self.first)
        if self.lost:
            world.lose_burst()

    def start(self) -> None:
        """Those that do not run, in any order."""
        nodes = [node for node, broker in self.cluster.brokers.items() if not broker.running]
        self.rng.shuffle(nodes)
        for node in nodes:
            self.cluster.links.accept(node)
            self.cluster.brokers[node].launch()
            time.sleep(self.rng.choice((0.0, 0.0, 0.5, 2.0)))
        for node in nodes:
            self.cluster.brokers[node].wait_ready()

    def verify_each(self) -> None:
        """What a disk has left is a whole directory of a broker. That replicas are equal is not to be asked now."""
        if self.rng.random() < 0.3:
            self.cluster.verify(self.some(1))
            self.tally["verify runs"] += 1

    def cut_starts(self) -> None:
        """While they recover."""
        while self.rng.random() < 0.3:
            for node, broker in self.cluster.brokers.items():
                self.cluster.links.accept(node)
                broker.launch()
            time.sleep(self.rng.uniform(0.0, 4.0))
            self.cut([*self.cluster.brokers])
            self.verify_each()
            self.tally["power cuts during a start"] += 1

    def pause(self, most: float = 1.5) -> None:
        time.sleep(self.rng.uniform(0.05, most))

    def some(self, number: int) -> list[int]:
        return self.rng.sample([*self.cluster.brokers], number)

    # Shapes of rounds

    def one(self, world: CutWorld) -> None:
        self.cut(self.some(1))
        self.pause(4.0)

    def leader(self, world: CutWorld) -> None:
        self.cut([self.cluster.leader(self.rng.choice(world.places))])
        self.pause(4.0)

    def two(self, world: CutWorld) -> None:
        self.cut(self.some(2))
        self.pause(4.0)

    def rolling(self, world: CutWorld) -> None:
        """One of them always has power."""
        one, other, _ = self.some(BROKERS)
        self.cut([one])
        self.pause()
        self.start()
        self.pause(3.0)
        self.cut([other])

    def all(self, world: CutWorld) -> None:
        self.cut([*self.cluster.brokers])
        self.verify_each()
        self.cut_starts()

    def all_late(self, world: CutWorld) -> None:
        """What is older than the table's half second must be there."""
        time.sleep(world.slack() + 1.0)
        self.all(world)

    def all_idle(self, world: CutWorld) -> None:
        world.end_burst()
        time.sleep(world.slack() + 1.0)
        self.all(world)

    def staggered(self, world: CutWorld) -> None:
        first, *others = self.some(BROKERS)
        self.cut([first])
        self.pause()
        self.cut(others)

    def staggered_two(self, world: CutWorld) -> None:
        *first, last = self.some(BROKERS)
        self.cut(first)
        self.pause()
        self.cut([last])

    def in_sync(self, world: CutWorld) -> None:
        """The third keeps its power. It follows, but while nobody can change the metadata it does not join; and it
        may have taken what the others then lose for replicated. Its process has to start again."""
        third, *members = self.some(BROKERS)
        world.fails_over()
        while not self._falls_behind(third):
            self.cluster.wait_in_sync()
        with self._locked_metadata():
            self.cluster.links.heal()
            self.pause(3.0)
            self.cut(members)

    def _falls_behind(self, node: int) -> bool:
        """Cut off, it leaves all ISRs. False: on a machine that stands still the sessions of the others may end, then
        it stays as the only one in sync; the network is whole again."""

        def is_over() -> bool:
            nonlocal behind
            isr = self.cluster.stored_isr().values()
            behind = all(node not in members for members in isr)
            return behind or any(members == {node} for members in isr)

        behind = False
        self.cluster.links.isolate(node)
        wait_until(is_over, GOES_ON_SECONDS, f"broker {node} to leave all ISRs")
        if not behind:
            self.cluster.links.heal()
        return behind

    @contextmanager
    def _locked_metadata(self) -> Iterator[None]:
        with closing(sqlite3.connect(self.disks.metadata.place / "cluster.db", GOES_ON_SECONDS)) as db:
            db.isolation_level = None
            db.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                db.execute("ROLLBACK")

    def changing(self, world: CutWorld) -> None:
        """Its process is gone, not its power; meanwhile others come to lead."""
        self.first = time.monotonic()
        world.fails_over()
        self.cluster.kill(self.cluster.leader(self.rng.choice(world.places)))
        self.pause()
        self.all(world)

    def stopping(self, world: CutWorld) -> None:
        self.first = time.monotonic()
        world.fails_over()
        for node in self.some(self.rng.randint(1, BROKERS)):
            process = self.cluster.brokers[node].process
            assert process is not None
            process.terminate()
        self.pause(1.0)
        self.all(world)

    # A round

    def round(self, shape: str) -> None:
        world = self.world
        assert world is not None
        self.first, self.lost, self.powered = 0.0, {}, {*self.cluster.brokers}
        world.burst()
        self.pause()
        self.shapes[shape](world)
        if self.lost:
            world.stop_looking()
        self.start()
        self.cluster.wait_in_sync()
        for broker in self.cluster.brokers.values():  # one may have started again by itself
            broker.wait_ready()
            assert broker.process is not None and broker.pid == broker.process.pid
        if world.bursts:
            world.end_burst()
        world.judge(self.lost)
        world.goes_on()
        self.tally[f"rounds: {shape}"] += 1
        for ledger in world.ledgers:
            self.tally[f"cuts judged: {ledger.line.name}"] += 1

    def run(self, lines: Sequence[Line], shapes: Sequence[str]) -> None:
        self.cluster.start()
        world = self.world = CutWorld(self.cluster, self.rng, lines, self.tally)
        try:
            world.begin(beside=self.rng.random() < 0.5)
            for shape in shapes:
                print(f"{time.strftime('%X')} {shape}", flush=True)
                self.round(shape)
            world.finish()
        finally:
            world.abandon()
        self.cluster.stop()
        self.cluster.verify()
        self.tally["verify runs"] += 1


def chosen_lines(rng: Random) -> list[Line]:
    """Commits are synced at once and would carry every line along: not always."""
    return [line for line in LINES.values() if line.flush != "commit"] if rng.random() < 0.25 else [*LINES.values()]


def settings(rng: Random) -> dict[str, str]:
    return {
        "cairn.journal.segment.bytes": str(rng.choice((1 << 16, 1 << 18, 1 << 20))),
        "cairn.checkpoint.interval.ms": str(rng.choice((200, 1000, 5000))),
        "cairn.reserve.bytes": str(1 << 18),
    }


def power_cuts(
    directory: Path,
    seed: int,
    tally: Counter[str],
    rounds: int = ROUNDS,
    *,
    shapes: Sequence[str] = (),
    lines: Sequence[Line] = (),
    lies_about: str = "",
) -> None:
    """An episode. `shapes`: those alone, one after the other, in the place of a choice."""
    rng = Random(seed)
    with ExitStack() as stack:
        disks = Disks(directory, stack, lies_about)
        cluster = Cluster(directory / "cluster", settings=settings(rng), metadata=disks.metadata.place / "cluster.db")
        for node, broker in cluster.brokers.items():
            broker.data = disks.of[node].place / "data"
        stack.callback(cluster.close)
        cuts = PowerCuts(cluster, disks, rng, tally)
        chosen = [rng.choice([*(shapes or cuts.shapes)]) for _ in range(rounds)]
        with accounted(cluster):
            cuts.run(lines or chosen_lines(rng), chosen if len(shapes) != rounds else shapes)
        again = sum(broker.log().count("the broker starts again") for broker in cluster.brokers.values())
        tally["processes that began again by themselves"] += again
