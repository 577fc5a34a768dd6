"""Power cuts: all processes die, the file system forgets a part of what was not synced, the broker starts on that."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from broker_process import Broker, fixed_port
from chaos.forgetful_mount import ForgetfulMount, forgetful_mount
from chaos.promises import POWER, Line
from chaos.world import World

ROUNDS = 10

WHEN = {"short": "under load", "long": "under load", "idle": "at rest", "stop": "in a clean stop"}


class PowerCuts:
    """One file system, one broker, `ROUNDS` rounds of load and loss; lines alone or together."""

    def __init__(self, directory: Path, rng: Random, lines: Sequence[Line], disk: ForgetfulMount, tally: Counter[str]):
        self.rng = rng
        self.lines = lines
        self.disk = disk
        self.tally = tally
        self.broker = Broker(directory / "broker", port=fixed_port(), http=False, settings=settings(rng))
        self.broker.data = disk.place / "data"
        if rng.random() < 0.5:
            self.broker.journal_dir = disk.place / "journals"
        self.world = World(self.broker, rng, lines, tally, steady=False)

    def cut(self) -> float:
        """When."""
        at = time.monotonic()
        self.broker.kill_tree()
        risked = self.disk.cut(self.rng.getrandbits(32))
        self.tally["power cuts"] += 1
        self.tally["files that were not synced at a cut"] += risked.files
        self.tally["names that were not synced at a cut"] += risked.names
        return at

    def cut_starts(self) -> None:
        """Again and again while it recovers."""
        while self.rng.random() < 0.5:
            self.broker.launch()
            time.sleep(self.rng.uniform(0.0, 0.6))
            self.cut()
            self.tally["power cuts during a start"] += 1

    def round(self) -> None:
        world, rng = self.world, self.rng
        world.burst()
        shape = rng.choice(("short", *WHEN))
        time.sleep(rng.uniform(0.05, 0.8))
        if shape == "long":
            time.sleep(world.slack())
        elif shape == "idle":
            world.end_burst(finish=True)
            time.sleep(world.slack() + 0.2)
        elif shape == "stop" and self.broker.process is not None:
            self.broker.process.terminate()
            time.sleep(rng.uniform(0.0, 0.4))
        at = self.cut()
        for line in self.lines:
            self.tally[f"power cuts {WHEN[shape]}: {line.name}"] += 1
        world.end_burst()
        world.stop_looking()
        world.verify()
        self.cut_starts()
        self.broker.start()
        world.judge(POWER, at)
        world.goes_on()
        world.look_on()

    def run(self, rounds: int) -> None:
        self.cut_starts()
        self.broker.start()
        try:
            # Commits and facts are synced at once and would carry every line along: not always.
            self.world.start(beside=self.rng.random() < 0.4)
            for _ in range(rounds):
                self.round()
            self.world.finish()
        finally:
            self.world.abandon()


def settings(rng: Random) -> dict[str, str]:
    return {
        "cairn.journals": str(rng.choice((1, 1, 2))),
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
    lines: Sequence[Line],
    lies_about: str = "",
) -> None:
    with forgetful_mount(directory / "disk", lies_about) as disk:
        cuts = PowerCuts(directory, Random(seed), lines, disk, tally)
        try:
            cuts.run(rounds)
        finally:
            cuts.broker.close()
