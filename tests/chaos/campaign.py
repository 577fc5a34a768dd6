"""The durability campaign: episodes of attacks, each from a seed of its own, until the time is over: `make chaos`.

A failing seed is printed with the command that repeats it: the same choices in the same order, not the same instants.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Protocol

from chaos.attacks import full_disks, io_errors, kills, pauses, room
from chaos.bank import bank
from chaos.cluster_stage import ClusterStage
from chaos.damages import TRIALS, damage, damage_campaign
from chaos.exactly_once import CLIENTS
from chaos.power_cuts import power_cuts
from chaos.promises import LINES
from chaos.transform import transform
from cluster.cuts import power_cuts as cluster_cuts
from cluster.faults import FULL, besiege
from cluster.lost_disks import WIPES
from damage.table import damage_tables

MINUTES = 5.0
DAMAGE = "damage"


class Episode(Protocol):
    """Raises AssertionError if a promise was broken."""

    def __call__(self, directory: Path, seed: int, tally: Counter[str], rounds: int = ...) -> None: ...


EPISODES: dict[str, Episode] = {
    "kills": kills,
    **{f"cuts:{name}": partial(power_cuts, lines=[line]) for name, line in LINES.items()},
    "cuts:together": partial(power_cuts, lines=[*LINES.values()]),
    "pauses": pauses,
    "full": full_disks,
    "eio": io_errors,
    **{f"bank:{client}": partial(bank, client=client) for client in CLIENTS},
    **{f"transform:{client}": partial(transform, client=client) for client in CLIENTS},
    "cluster": besiege,
    "cluster:lost-disks": partial(
        besiege, names=[*WIPES, "kills of a broker alone", "kills of all brokers"], little_kept=True
    ),
    "cluster:full-disk": partial(
        besiege, names=[FULL, FULL, "kills of a leader", "clean restarts"], little_kept=True, is_small=True
    ),
    "cluster-java": partial(besiege, program="java"),
    "cluster-cuts": cluster_cuts,
    **{f"cluster-bank:{client}": partial(bank, client=client, place=ClusterStage) for client in CLIENTS},
    **{f"cluster-transform:{client}": partial(transform, client=client, place=ClusterStage) for client in CLIENTS},
    DAMAGE: damage,
}


def chosen(kinds: str) -> list[str]:
    """`cuts` are all `cuts:...`; so it is with `bank`, `transform`, `cluster`, `cluster-bank` and `cluster-transform`.
    `bank` is none of a cluster."""
    names = [name for kind in kinds.split(",") for name in EPISODES if name == kind or name.startswith(f"{kind}:")]
    if not names:
        raise SystemExit(
            f"KINDS={kinds}: choose from {', '.join(EPISODES)}, or cuts, bank, cluster, transform for all of them"
        )
    return names


def run_episode(name: str, seed: int, tally: Counter[str], root: Path | None = None) -> None:
    """Its counts are added only if it ends well; its files stay if it does not."""
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{name.replace(':', '-')}-{seed}-", dir=root))
    counts: Counter[str] = Counter()
    try:
        EPISODES[name](directory, seed, counts)
    except BaseException:
        print(f"{name} failed; its files are in {directory}, and the same choices again are\n"
              f"  make chaos KINDS={name} SEED={seed} MINUTES=0", flush=True)  # fmt: skip
        raise
    room(directory)
    counts[f"episodes: {name}"] += 1
    tally.update(counts)


def keep(tally: Counter[str], path: Path) -> None:
    """Adds up what several runs counted."""
    before = Counter(json.loads(path.read_text())) if path.exists() else Counter()
    path.write_text(json.dumps(dict(sorted((before + tally).items())), indent=1) + "\n")


def damages_alone(seed: int, options: argparse.Namespace) -> int:
    """Trials are many and short, and one that fails does not end the run: the table shows all."""
    tally: Counter[str] = Counter()
    trials = options.trials if options.trials is not None or options.minutes is not None else TRIALS
    broken = damage_campaign(seed, tally, trials=trials, minutes=options.minutes, kind=options.file)
    if options.tally is not None:
        keep(tally, options.tally)
    print(damage_tables(tally))
    return 1 if broken else 0


def goes_on(options: argparse.Namespace, number: int, kinds: int, seconds: float, total: Counter[str]) -> bool:
    """Whether another episode begins. One that does is finished."""
    if options.faults is not None:
        return total["faults"] + total["power cuts"] < options.faults
    minutes = MINUTES if options.minutes is None else options.minutes
    return number < kinds if minutes == 0 else seconds < minutes * 60


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; later episodes count on from it")
    parser.add_argument("--minutes", type=float, help="no episode begins later (5); 0: one of each kind")
    parser.add_argument("--faults", type=int, help="of cluster and cuts: go on until there were so many")
    parser.add_argument("--trials", type=int, help=f"of damage alone: how many ({TRIALS:,}, or as --minutes allows)")
    parser.add_argument(
        "--file", help="of damage alone: only in files of this kind (journal, segment, ..., as the table says)"
    )
    parser.add_argument("--kinds", default=",".join(EPISODES), help=", ".join(EPISODES))
    parser.add_argument("--tally", type=Path, help="a JSON file to which the counts are added")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000
    names = chosen(options.kinds)
    for library in ("aiokafka", "kafka", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # they tell of every lost connection
    print(f"chaos: SEED={seed} KINDS={','.join(names)}", flush=True)
    if names == [DAMAGE]:
        return damages_alone(seed, options)
    total: Counter[str] = Counter()
    started = time.monotonic()
    number = 0
    while goes_on(options, number, len(names), time.monotonic() - started, total):
        name = names[number % len(names)]
        tally: Counter[str] = Counter()
        run_episode(name, seed + number, tally)
        total += tally
        if options.tally is not None:
            keep(tally, options.tally)
        number += 1
        print(f"{time.monotonic() - started:6.0f} s  {name} seed {seed + number - 1}: held", flush=True)
    for count, value in sorted(total.items()):
        print(f"{value:10}  {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
