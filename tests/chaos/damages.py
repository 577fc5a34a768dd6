"""Damaged files under real brokers: trials on copies of a few data directories that are made once for all of them.

A trial has a seed of its own, which is printed if it fails; the others go on.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count as count_from
from pathlib import Path

from confluent_kafka import KafkaException

from cairnmq.client.errors import ClientError
from cairnmq.codec.compression import Undecodable
from chaos.world import Broken
from damage.hurt import files_of
from damage.judgement import Verdict
from damage.stock import NAMES, Stock, build
from damage.table import BROKEN, key
from damage.trial import Trial

TRIALS = 1000  # of a campaign of nothing else
ROUNDS = 20  # of one episode among others
KEPT = 20  # failed trials whose files stay


@cache
def stocks(names: Sequence[str] = NAMES) -> dict[str, Stock]:
    """Made at the same time, and gone when the process ends. Each is well as long as nothing is damaged."""
    root = Path(tempfile.mkdtemp(prefix="chaos-damage-stocks-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with ThreadPoolExecutor(len(names)) as pool:
        made = {stock.name: stock for stock in pool.map(lambda name: build(root / name, name), names)}
    for name, stock in made.items():
        directory = root / f"{name}-unhurt"
        trial = Trial(stock, 0, directory, Counter())
        verdict = trial.run(unhurt=True)
        if verdict.findings or trial.verify_lines:
            raise Broken(f"{name}, with nothing damaged: {[*verdict.findings, *trial.verify_lines][:5]}")
        shutil.rmtree(directory)
    return made


class Damages:
    """Trials one after the other. `broken`: seeds of those that broke a promise, with what they broke."""

    def __init__(self, directory: Path, tally: Counter[str], kind: str | None = None) -> None:
        self.directory = directory
        self.tally = tally
        self.kind = kind
        self.broken: dict[int, list[str]] = {}
        self.peak_bytes = 0

    def run(self, seed: int) -> None:
        worlds = [each for each in stocks().values() if self.kind is None or self.kind in files_of(each.root)]
        if not worlds:
            raise SystemExit(f"no file of the kind {self.kind}")
        stock = worlds[seed % len(worlds)]
        directory = self.directory / f"damage-{seed}"
        counts: Counter[str] = Counter()
        trial = Trial(stock, seed, directory, counts)
        started = time.monotonic()
        verdict = self.verdict_of(trial)
        assert trial.hurt is not None
        self.peak_bytes = max(self.peak_bytes, trial.peak_bytes)
        counts["trials"] += 1
        outcome = BROKEN if verdict.findings else verdict.outcome
        counts[key(trial.hurt.kind, trial.hurt.way, outcome)] += 1
        counts[f"worlds: {stock.name}"] += 1
        self.tally.update(counts)
        seconds = time.monotonic() - started
        print(f"{seconds:6.1f} s  damage seed {seed} ({stock.name}): {trial.hurt}: {outcome}", flush=True)
        if verdict.findings:
            self.report(trial, seed, verdict)
        else:
            shutil.rmtree(directory)

    def verdict_of(self, trial: Trial) -> Verdict:
        try:
            return trial.run(kind=self.kind)
        except (AssertionError, OSError, ClientError, Undecodable, KafkaException) as problem:
            return Verdict([f"{type(problem).__name__}: {problem}"])

    def report(self, trial: Trial, seed: int, verdict: Verdict) -> None:
        assert trial.hurt is not None
        self.broken[seed] = verdict.findings
        for finding in verdict.findings[:5]:
            print(f"          {finding}")
        if len(verdict.findings) > 5:
            print(f"          and {len(verdict.findings) - 5} more")
        kind = f' ARGS="--file {self.kind}"' if self.kind is not None else ""
        again = f"make chaos KINDS=damage SEED={seed} TRIALS=1{kind}"
        if len(self.broken) <= KEPT:
            # The copy has been worked on: beside it, as it was when the first start came.
            damaged = trial.directory / "damaged"
            shutil.copytree(trial.stock.root, damaged)
            trial.hurt.apply(damaged)
            (trial.directory / "findings").write_text("\n".join([str(trial.hurt), *verdict.findings, ""]))
            print(f"          its files are in {trial.directory}; the same damage again: {again}", flush=True)
        else:
            shutil.rmtree(trial.directory)
            print(f"          the same damage again: {again}", flush=True)

    def judge(self) -> None:
        if self.broken:
            first = next(iter(self.broken))
            raise Broken(
                f"{len(self.broken)} of {self.tally['trials']} trials broke a promise, seeds "
                f"{', '.join(map(str, self.broken))}; the first: {self.broken[first][0]}"
            )


def damage(directory: Path, seed: int, tally: Counter[str], rounds: int = ROUNDS) -> None:
    """One episode among others: `rounds` trials."""
    damages = Damages(directory, tally)
    for number in range(rounds):
        damages.run(seed + number)
    damages.judge()


def damage_campaign(
    seed: int, tally: Counter[str], *, trials: int | None, minutes: float | None, kind: str | None
) -> dict[int, list[str]]:
    """Nothing but trials, with seeds from `seed` on, until there were so many or the time is over; what was broken."""
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-damage-{seed}-"))
    damages = Damages(directory, tally, kind)
    for each in seeds(seed, trials, minutes):
        damages.run(each)
    print(f"at most {damages.peak_bytes >> 20} MB of memory in the processes of one broker")
    if damages.broken:
        print(f"{len(damages.broken)} trials broke a promise: seeds {', '.join(map(str, damages.broken))}")
    else:
        shutil.rmtree(directory)
    return damages.broken


def seeds(seed: int, trials: int | None, minutes: float | None) -> Iterator[int]:
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    for number in count_from():
        if number == trials or (number and deadline is not None and time.monotonic() >= deadline):
            return
        yield seed + number
