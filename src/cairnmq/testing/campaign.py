"""Crash after crash on simulated disks, seed after seed, until the time is over: `make sim`."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from cairnmq.testing.replicas.group_world import GroupWorld
from cairnmq.testing.replicas.install_world import InstallWorld
from cairnmq.testing.replicas.lease_world import LeaseWorld
from cairnmq.testing.replicas.narrow_world import NarrowWorld
from cairnmq.testing.replicas.stored_world import StoredWorld
from cairnmq.testing.replicas.transaction_world import TransactionWorld
from cairnmq.testing.replicas.world import ReplicaWorld
from cairnmq.testing.sim_coordinators import CoordinatorWorld
from cairnmq.testing.sim_machine import Tally
from cairnmq.testing.sim_storage import World

STEPS = 400
CLUSTERS = 4  # worlds of replicas for each world of storage: they are quicker
MINUTES = 5


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cairnmq.testing.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; without --minutes only this one is run")
    parser.add_argument("--minutes", type=float, help=f"how long to go on with further seeds (default {MINUTES})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps per seed (default {STEPS})")
    parser.add_argument("--trace", action="store_true", help="print what happens to the machine")
    options = parser.parse_args(arguments)
    minutes = options.minutes
    if minutes is None:
        minutes = MINUTES if options.seed is None else 0
    # A campaign goes where no earlier one was; the number it begins with is all that is needed to repeat it.
    seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000
    total, seeds, clusters, started, told = Tally(), 0, 0, time.monotonic(), 0.0
    while True:
        try:
            world = CoordinatorWorld if seed % 2 else World
            total.add(run_seed(seed, steps=options.steps, trace=options.trace, world=world))
            for cluster in range(seed * CLUSTERS, (seed + 1) * CLUSTERS):
                ReplicaWorld(cluster).run()
                LeaseWorld(cluster).run()
                GroupWorld(cluster).run()
                InstallWorld(cluster).run()
                NarrowWorld(cluster).run()
                StoredWorld(cluster).run()
                clusters += 1
            TransactionWorld(seed).run()
        except Exception:
            again = f"python -m cairnmq.testing.campaign --seed {seed} --steps {options.steps} --trace"
            print(f"seed {seed} failed after {total.crash_points} good crash points; replay it with\n  {again}")
            raise
        seeds += 1
        seed += 1
        spent = time.monotonic() - started
        so_far = f"{seeds} seeds in {spent:.1f} s: {total.crash_points / spent * 60:.0f} crash points a minute"
        if spent > minutes * 60:
            break
        if spent - told >= 60:
            told = spent
            print(so_far, flush=True)
    print(", ".join(f"{getattr(total, field)} {field.replace('_', ' ')}" for field in total.__struct_fields__))
    print(
        f"{clusters} clusters of replicas, {clusters} short of room, {clusters} with real storage, "
        f"{seeds} under transactions"
    )
    print(f"{so_far}, no violation")
    return 0


if __name__ == "__main__":
    # What disks refuse is all that happens here. For this process only: a test calls main() in its own.
    logging.disable(logging.ERROR)
    sys.exit(main())
