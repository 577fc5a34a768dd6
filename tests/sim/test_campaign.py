"""The simulation itself: seeds that must stay clean, and a seed that must replay to the byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from cairnmq.testing import campaign
from cairnmq.testing.campaign import run_seed
from cairnmq.testing.oracle import Violation
from cairnmq.testing.sim_machine import Tally
from cairnmq.testing.sim_storage import World

OF_COORDINATORS = {"compactions", "commits", "rebalances", "ended_transactions"}  # see test_coordinators.py


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_no_crash_breaks_a_promise(first: int) -> None:
    total = Tally()
    for seed in range(first, first + 20):
        try:
            total.add(run_seed(seed))
        except Exception as error:
            error.add_note(f"seed {seed}: python -m cairnmq.testing.campaign --seed {seed} --trace")
            raise
    assert total.crash_points > 2000
    # each of these kinds of trouble was really met
    for field in set(total.__struct_fields__) - OF_COORDINATORS:
        assert getattr(total, field) > 0, field


def test_every_single_operation_is_a_crash_point() -> None:
    """With a share of 1 a side world branches off in the middle of each disk operation."""
    tally = run_seed(4242, steps=250, branch_share=1.0)
    assert tally.crash_points > 300


def test_a_seed_replays_exactly() -> None:
    """Also in another process with other hash values or without kernels, or a failing seed would be worth nothing."""
    runs = set()
    for changed in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}, {"CAIRNMQ_PURE": "1"}):
        output = subprocess.run(
            [sys.executable, "-m", "cairnmq.testing.campaign", "--seed", "7", "--steps", "200", "--trace"],
            env={**os.environ, **changed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        runs.add(output.rpartition("\n1 seeds in ")[0])
    assert len(runs) == 1
    assert "open: epoch 2" in runs.pop()


def test_a_failing_seed_says_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(world: World, steps: int) -> Tally:
        raise Violation("planted")

    monkeypatch.setattr(World, "run", fail)
    with pytest.raises(Violation):
        campaign.main(["--minutes", "0", "--steps", "10"])
    said = capsys.readouterr().out
    seed = said.split()[1]
    assert f"python -m cairnmq.testing.campaign --seed {seed} --steps 10" in said


def counts_of(*arguments: str) -> dict[str, str]:
    """World -> what it says that its seeds met."""
    asked = [sys.executable, "-m", "cairnmq.testing.campaign", *arguments]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-1].endswith("no violation")
    return dict(line.split(": ", 1) for line in said[:-1])


def test_every_world_has_its_seeds() -> None:
    told = counts_of("--seed", "3", "--steps", "10")
    assert set(told) == set(campaign.WORLDS)
    assert all(re.search(r"\b1 seeds\b", met) for met in told.values()), told


def test_several_processes_run_the_same_seeds() -> None:
    chosen = ("--seed", "3", "--seeds", "6", "--steps", "40", "--world", "storage", "--world", "leases")
    told = counts_of(*chosen, "--processes", "2")
    assert told == counts_of(*chosen)
    assert list(told) == ["storage", "leases"]
    assert all(re.search(r"\b6 seeds\b", met) for met in told.values()), told


def test_a_violation_in_any_process_ends_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(world: World, steps: int) -> Tally:
        raise Violation("planted")

    monkeypatch.setattr(World, "run", fail)
    with pytest.raises(Violation):
        campaign.main(["--seed", "3", "--seeds", "20", "--processes", "2", "--world", "storage", "--world", "leases"])


@pytest.mark.parametrize(
    ("asked", "seeds", "minutes"),
    [
        ([], campaign.SEEDS, 0),
        (["--seed", "7"], 1, 0),
        (["--minutes", "3"], 0, 3),
        (["--minutes", "3", "--seeds", "9"], 9, 3),
        (["--seed", "7", "--seeds", "9"], 9, 0),
    ],
)
def test_how_long_it_goes_on(asked: list[str], seeds: int, minutes: float) -> None:
    options = campaign.parsed(asked)
    assert (options.seeds, options.minutes) == (seeds, minutes)


def test_rounds_give_every_world_the_seeds_that_are_wanted() -> None:
    options = campaign.parsed(["--seed", "40", "--seeds", "9"])
    blocks = [block for blocks in campaign.Campaign(options, 40).rounds() for block in blocks]
    for world in campaign.WORLDS:
        seeds = [seed for b in blocks if b.world == world for seed in range(b.first, b.first + b.count)]
        assert seeds == list(range(40, 49))
