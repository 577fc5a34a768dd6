"""What may happen to a cluster, chosen by a seed: kills, pauses, cuts, restarts, one after the other or two at once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

from broker_process import wait_until
from cluster.account import accounted
from cluster.brokers import FAILURES, Cluster
from cluster.lost_disks import LITTLE_KEPT, WIPES, installs
from cluster.world import GOES_ON_SECONDS, MANNERS, PROGRAMS, STRONG, World
from crash.ledger import Place
from faults.disks import fill, small_disk

ROUNDS = 20
MEGABYTES = 64
FULL = "full disks"
SHORT, LONG = (0.0, 1.5), (2.5, 7.0)
"""How long something lasts: before a session of two seconds is over, or behind it."""


class Faults:
    """Each returns when all brokers run and the network is whole again."""

    def __init__(self, cluster: Cluster, rng: Random, tally: Counter[str], disk: Path | None = None) -> None:
        """`disk`: the small one of the last broker."""
        self.disk = disk
        self.cluster = cluster
        self.rng = rng
        self.tally = tally
        self.acts: dict[str, Callable[[], None]] = {
            "kills of a leader": self.kill_leader,
            "kills of the controller": self.kill_controller,
            "kills of a broker alone": self.kill_alone,
            "kills of a splitter": self.kill_splitter,
            "kills of two brokers": self.kill_two,
            "kills of all brokers": self.kill_all,
            "crash loops": self.crash_loop,
            "pauses of a broker": self.pause,
            "pauses of a splitter": self.pause_splitter,
            "pauses that end in a kill": self.pause_and_kill,
            "cuts one way": self.cut,
            "cuts both ways": self.part,
            "brokers cut off": self.isolate,
            "leaders that hear nobody": self.deafen,
            "refused connections": self.refuse,
            "broken connections": self.reset,
            "clean restarts": self.restart,
            "kills behind a cut": self.kill_behind_a_cut,
            **{name: partial(self.lose_disk, wipe) for name, wipe in WIPES.items()},
        }
        if disk is not None:
            self.acts[FULL] = self.fill_disk

    def any(self, names: Sequence[str] = ()) -> str:
        """One of them, and its name."""
        name = self.rng.choice([*(names or self.acts)])
        self.acts[name]()
        self.tally[name] += 1
        self.tally["faults"] += 1
        return name

    # Whom, and for how long

    def some(self) -> int:
        return self.rng.choice([*self.cluster.brokers])

    def leader(self) -> int:
        return self.cluster.leader(Place(STRONG, self.rng.randrange(4)))

    def two(self) -> tuple[int, int]:
        one, other = self.rng.sample([*self.cluster.brokers], 2)
        return one, other

    def last(self) -> None:
        time.sleep(self.rng.uniform(*self.rng.choice((SHORT, LONG))))

    # Kills

    def kill_leader(self) -> None:
        self._kill(self.leader())

    def kill_controller(self) -> None:
        node = self.some()
        with suppress(*FAILURES):
            node = self.cluster.controller()
        self._kill(node if node in self.cluster.brokers else self.some())

    def _kill(self, node: int) -> None:
        self.cluster.kill(node)
        self.tally["kill -9"] += 1
        self.last()
        self.cluster.revive(node)

    def kill_alone(self) -> None:
        """The successor may start while the splitter is still there."""
        node = self.some()
        self.cluster.kill_alone(node)
        self.tally["kill -9"] += 1
        time.sleep(self.rng.choice((0.0, 0.0, 1.0, 4.0)))
        self.cluster.revive(node)

    def kill_splitter(self) -> None:
        broker = self.cluster.brokers[self.some()]
        wait_until(lambda: broker.splitter() is not None, GOES_ON_SECONDS, "a splitter")
        broker.kill_splitter()
        self.tally["kill -9"] += 1

    def kill_two(self) -> None:
        self._kill_all(list(self.two()))

    def kill_all(self) -> None:
        """What is acknowledged is in the page cache at least, of each of them."""
        self._kill_all(list(self.cluster.brokers))

    def _kill_all(self, nodes: list[int]) -> None:
        for node in nodes:
            self.cluster.kill(node)
            self.tally["kill -9"] += 1
            time.sleep(self.rng.choice((0.0, 0.0, 0.5, 3.0)))
        self.rng.shuffle(nodes)
        for node in nodes:
            self.cluster.links.accept(node)
            self.cluster.brokers[node].launch()
            time.sleep(self.rng.choice((0.0, 0.0, 0.5, 3.0)))
        for node in nodes:
            self.cluster.brokers[node].wait_ready()

    def crash_loop(self) -> None:
        """Killed while it starts, at any moment, several times."""
        node = self.some()
        broker = self.cluster.brokers[node]
        self.cluster.kill(node)
        for _ in range(self.rng.randint(1, 4)):
            self.cluster.links.accept(node)
            broker.launch()
            time.sleep(self.rng.uniform(0.0, 1.5))
            self.cluster.kill(node)
            self.tally["kill -9"] += 1
        self.cluster.revive(node)

    # Pauses

    def pause(self) -> None:
        with self.cluster.paused(self.rng.choice((self.leader(), self.some()))):
            self._rest()

    def _rest(self) -> None:
        self.tally["SIGSTOP"] += 1
        time.sleep(self.rng.choice((1.0, 2.0, 3.0, 5.0, 10.0)))

    def pause_splitter(self) -> None:
        broker = self.cluster.brokers[self.some()]
        wait_until(lambda: broker.splitter() is not None, GOES_ON_SECONDS, "a splitter")
        splitter = broker.splitter()
        assert splitter is not None
        splitter.send_signal(signal.SIGSTOP)
        self._rest()
        with suppress(ProcessLookupError):
            os.kill(splitter.pid, signal.SIGCONT)

    def pause_and_kill(self) -> None:
        node = self.leader()
        with self.cluster.paused(node):
            self._rest()
            self.cluster.kill(node)
            self.tally["kill -9"] += 1
        self.cluster.revive(node)

    # The network

    def cut(self) -> None:
        self.cluster.links.cut(*self.two())
        self._heal()

    def part(self) -> None:
        self.cluster.links.part(*self.two())
        self._heal()

    def isolate(self) -> None:
        """It still has the metadata, and its clients."""
        self.cluster.links.isolate(self.rng.choice((self.leader(), self.some())))
        self._heal()

    def deafen(self) -> None:
        """What others send to a leader does not come, so that it cannot know what they have; what it sends does."""
        node = self.leader()
        for other in self.cluster.brokers:
            if other != node:
                self.cluster.links.cut(other, node)
        self._heal()

    def _heal(self) -> None:
        self.tally["cuts"] += 1
        self.last()
        if self.rng.random() < 0.3:
            self.cluster.links.reset(self.some())
        self.cluster.links.heal()

    def refuse(self) -> None:
        """As if its process had ended, which is what others may take it for."""
        node = self.some()
        self.cluster.links.refuse(node)
        if self.rng.random() < 0.7:
            self.cluster.links.reset(node)
        self.tally["cuts"] += 1
        self.last()
        self.cluster.links.accept(node)

    def reset(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.cluster.links.reset(self.some())
            time.sleep(self.rng.uniform(0.0, 0.3))
        self.tally["cuts"] += 1

    # Both, and neither

    def restart(self) -> None:
        self.cluster.restart(self.some())

    def kill_behind_a_cut(self) -> None:
        """A leader goes on alone for a while, and then it is gone."""
        node = self.leader()
        self.cluster.links.isolate(node)
        self.tally["cuts"] += 1
        self.last()
        self.cluster.kill(node)
        self.tally["kill -9"] += 1
        self.cluster.links.heal()
        self.last()
        self.cluster.revive(node)

    # Disks

    def lose_disk(self, wipe: Callable[[Path], None]) -> None:
        """Of a broker that is killed. Others have all that was acknowledged, also with acks=1."""
        self.cluster.wait_in_sync()
        node = self.some()
        before = installs(self.cluster, node)
        self.cluster.kill(node)
        self.tally["kill -9"] += 1
        wipe(self.cluster.brokers[node].data)
        self.last()
        self.cluster.revive(node)
        if self.rng.random() < 0.5:  # else the next fault comes while it is installed
            self.cluster.wait_in_sync()
            self.tally["journals taken over"] += installs(self.cluster, node) - before

    def fill_disk(self) -> None:
        """A broker's only disk, for a while; it may be killed meanwhile."""
        assert self.disk is not None
        junk, node = fill(self.disk), max(self.cluster.brokers)
        self.last()
        is_killed = self.rng.random() < 0.5
        if is_killed:
            self.cluster.kill(node)
            self.tally["kill -9"] += 1
        junk.unlink()
        if is_killed:
            self.cluster.revive(node)


def besiege(
    directory: Path,
    seed: int,
    tally: Counter[str],
    rounds: int = ROUNDS,
    *,
    names: Sequence[str] = (),
    program: str = "",
    little_kept: bool = False,
    is_small: bool = False,
) -> None:
    """An episode: faults under load, one after the other; then all is judged, and the replicas are compared.

    `program`: a client that is one, in the place of the libraries. `little_kept`: of journals, so that replicas are
    installed. `is_small`: the disk of one broker.
    """
    rng = Random(seed)
    with ExitStack() as stack:
        cluster = Cluster(directory, settings=LITTLE_KEPT if little_kept else None)
        disk = None
        if is_small:
            disk = stack.enter_context(small_disk(directory / "disk", MEGABYTES))
            cluster.brokers[max(cluster.brokers)].data = disk / "data"
        stack.enter_context(cluster.up())
        stack.enter_context(accounted(cluster))
        world = World(cluster, tally, PROGRAMS if program else MANNERS, program)
        with world.lived_in():
            faults = Faults(cluster, rng, tally, disk)
            for _ in range(rounds):
                time.sleep(rng.uniform(0.0, 1.0))
                faults.any(names)
                if rng.random() < 0.7:  # else the next one comes while this one is not over
                    world.goes_on()
        cluster.stop()
        cluster.verify()
        tally["verify runs"] += 1
