"""`python -m cairnmq.testing.campaign`: crash after crash on simulated disks, seed after seed, until the time is over."""

from __future__ import annotations

import argparse
import sys
import time

from cairnmq.testing.sim_storage import Tally, World

STEPS = 400


def run_seed(seed: int, *, steps: int = STEPS, branch_share: float = 0.25, trace: bool = False) -> Tally:
    """One world from its seed. The same seed and steps give the same run, to the byte."""
    return World(seed, branch_share=branch_share, trace=print if trace else None).run(steps)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cairnmq.testing.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed only")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on with new seeds")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps per seed")
    parser.add_argument("--trace", action="store_true", help="print what happens to the machine")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000_000 * 1000
    total, seeds, started = Tally(), 0, time.monotonic()
    while True:
        try:
            total.add(run_seed(seed, steps=options.steps, trace=options.trace))
        except Exception:
            print(f"seed {seed} failed. Replay: python -m cairnmq.testing.campaign --seed {seed} --steps {options.steps}")
            raise
        seeds += 1
        seed += 1
        spent = time.monotonic() - started
        if options.seed is not None or spent > options.minutes * 60:
            break
    rate = total.crash_points / spent * 60
    print(f"{seeds} seeds, {total.crash_points} crash points in {spent:.1f} s: {rate:.0f} a minute, no violation")
    print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
