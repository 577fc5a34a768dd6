"""Every simulated world, seed after seed, until each has had its number of them, or the time is over: `make sim`."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

from msgspec import Struct

from cairnmq.testing.brokers.sim_cluster import ClusterWorld
from cairnmq.testing.brokers.sim_world import FaultyWorld
from cairnmq.testing.replicas.group_world import GroupWorld
from cairnmq.testing.replicas.install_world import InstallWorld
from cairnmq.testing.replicas.lease_world import LeaseWorld
from cairnmq.testing.replicas.narrow_world import NarrowWorld
from cairnmq.testing.replicas.near_world import NearWorld
from cairnmq.testing.replicas.stored_world import StoredWorld
from cairnmq.testing.replicas.transaction_world import TransactionWorld
from cairnmq.testing.replicas.world import ReplicaWorld
from cairnmq.testing.sim_coordinators import CoordinatorWorld
from cairnmq.testing.sim_machine import Tally
from cairnmq.testing.sim_storage import World

STEPS = 400
SEEDS = 1000
BLOCK = 4  # seeds of one world that a process runs before it looks at the others

ON_ONE_NODE: dict[str, type[World]] = {"storage": World, "coordinators": CoordinatorWorld}
CLUSTERS: dict[str, type[ReplicaWorld] | type[StoredWorld]] = {
    "replicas": ReplicaWorld,
    "leases": LeaseWorld,
    "room": NarrowWorld,
    "installs": InstallWorld,
    "transactions": TransactionWorld,
    "stored": StoredWorld,
    "groups": GroupWorld,
    "readers": NearWorld,
}
WHOLE: dict[str, type[FaultyWorld] | type[ClusterWorld]] = {"broker": FaultyWorld, "brokers": ClusterWorld}
WORLDS = (*ON_ONE_NODE, *CLUSTERS, *WHOLE)


def run_seed(
    seed: int,
    *,
    steps: int = STEPS,
    branch_share: float = 0.25,
    trace: bool = False,
    world: type[World] = World,
) -> Tally:
    """One world from its seed. The same seed and steps give the same run, to the byte."""
    return world(seed, branch_share=branch_share, trace=print if trace else None).run(steps)


class Block(Struct, frozen=True):
    """Seeds of one world, one after the other. `steps` is for the worlds on one node."""

    world: str
    first: int
    count: int
    steps: int
    trace: bool


def run_block(block: Block) -> Counter[str]:
    """What its seeds met, and how many they were. Who runs it says which seed failed, and how to repeat it."""
    met: Counter[str] = Counter()
    for seed in range(block.first, block.first + block.count):
        try:
            met.update(met_by(seed, block))
        except Exception:
            again = f"python -m cairnmq.testing.campaign --seed {seed} --steps {block.steps} --world {block.world}"
            print(f"seed {seed} of {block.world} failed; replay it with\n  {again} --trace", flush=True)
            raise
        met["seeds"] += 1
    return met


def met_by(seed: int, block: Block) -> Counter[str]:
    """By one seed: crash points, kinds of faults, acknowledged records."""
    if block.world in ON_ONE_NODE:
        tally = run_seed(seed, steps=block.steps, trace=block.trace, world=ON_ONE_NODE[block.world])
        return Counter({field: getattr(tally, field) for field in tally.__struct_fields__})
    if block.world in WHOLE:
        whole = WHOLE[block.world](seed)
        whole.run()
        return Counter(whole.struck)
    world = CLUSTERS[block.world](seed)
    world.run()
    return world.counts + world.judge.counts if isinstance(world, TransactionWorld) else world.counts


class Campaign:
    """What has been run. Rounds go through all worlds, so that none is left behind when the time is over."""

    def __init__(self, options: argparse.Namespace, first: int) -> None:
        self.met: dict[str, Counter[str]] = {world: Counter() for world in options.world or WORLDS}
        self._options = options
        self._first = first
        self._started = self._told = time.monotonic()

    @property
    def seeds(self) -> int:
        """That every world has had."""
        return min(met["seeds"] for met in self.met.values())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def is_over(self, seeds: int) -> bool:
        """So many seeds are enough, and the time is over."""
        wanted: int = self._options.seeds
        minutes: float = self._options.minutes
        return seeds >= wanted and self.seconds > minutes * 60

    def rounds(self) -> Iterator[list[Block]]:
        """A block of each world; the last ones may be smaller."""
        options, given = self._options, 0
        while given == 0 or not self.is_over(given):
            wanted = options.seeds - given
            count = min(BLOCK, wanted) if wanted > 0 else BLOCK if options.seeds else 1
            yield [Block(world, self._first + given, count, options.steps, options.trace) for world in self.met]
            given += count

    def took(self, block: Block, met: Counter[str]) -> None:
        self.met[block.world].update(met)
        if self.seconds - (self._told - self._started) >= 60:
            self._told = time.monotonic()
            print(self.so_far(), flush=True)

    def so_far(self) -> str:
        points = sum(met["crash_points"] for met in self.met.values())
        rate = f": {points / self.seconds * 60:.0f} crash points a minute" if points else ""
        return f"{self.seeds} seeds in {self.seconds:.1f} s of each of {len(self.met)} worlds{rate}"

    def table(self) -> Iterable[str]:
        """Seeds of each world, and what they met."""
        for world, met in self.met.items():
            kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(met.items()) if count)
            yield f"{world}: {kinds}"


def run_alone(campaign: Campaign) -> None:
    for block in itertools.chain.from_iterable(campaign.rounds()):
        campaign.took(block, run_block(block))


def run_in(processes: int, campaign: Campaign) -> None:
    """Two rounds are under way at a time, so that no process waits for the slowest block of one."""
    with ProcessPoolExecutor(processes, get_context("fork"), _be_quiet) as pool:
        try:
            waiting: list[tuple[Block, Future[Counter[str]]]] = []
            for blocks in campaign.rounds():
                running = [(block, pool.submit(run_block, block)) for block in blocks]
                for block, done in waiting:
                    campaign.took(block, done.result())
                waiting = running
            for block, done in waiting:
                campaign.took(block, done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _be_quiet() -> None:
    """What disks refuse is all that happens here."""
    logging.disable(logging.ERROR)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cairnmq.testing.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; without --seeds and --minutes only this one is run")
    parser.add_argument("--seeds", type=int, help=f"how many of each world at least (default {SEEDS})")
    parser.add_argument("--minutes", type=float, help="how long to go on at least; alone, there is no number of seeds")
    parser.add_argument("--world", action="append", choices=WORLDS, help="this one; may be given again (default all)")
    parser.add_argument("--processes", type=int, default=1, help="how many work at a time (default 1)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"per seed of a world on one node (default {STEPS})")
    parser.add_argument("--trace", action="store_true", help="print what happens to the machine, in those worlds")
    options = parser.parse_args(arguments)
    if options.seeds is None:
        options.seeds = 1 if options.seed is not None else 0 if options.minutes is not None else SEEDS
    options.minutes = options.minutes or 0
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    # A campaign goes where no earlier one was; the number it begins with is all that is needed to repeat it.
    campaign = Campaign(options, options.seed if options.seed is not None else time.time_ns() // 1_000_000)
    if options.processes > 1:
        run_in(options.processes, campaign)
    else:
        run_alone(campaign)
    print("\n".join(campaign.table()))
    if campaign.seeds < options.seeds:
        print(f"a world had only {campaign.seeds} of {options.seeds} seeds")
        return 1
    print(f"{campaign.so_far()}, no violation")
    return 0


if __name__ == "__main__":
    # For this process and those that it starts only: a test calls main() in its own.
    _be_quiet()
    sys.exit(main())
