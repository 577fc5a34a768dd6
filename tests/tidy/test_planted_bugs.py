"""Every planted bug is looked for, and docs/testing.md says which of the 38 mistakes of the cluster's design it is."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from types import ModuleType

from tidy.tree import ROOT

SIMULATIONS = ROOT / "tests" / "sim"
MISTAKES = {*range(1, 39)}
SEEDS_MAX = 100


def simulations() -> list[ModuleType]:
    return [importlib.import_module(f"sim.{path.stem}") for path in sorted(SIMULATIONS.glob("test_*.py"))]


def registry(simulation: ModuleType) -> tuple[str, Mapping[str, int | None]] | None:
    """Where the bugs are that a simulation looks for, and the seed of each; None for those that are among the first."""
    if hasattr(simulation, "FOUND"):
        (bugs,) = (
            one for one in vars(simulation).values() if isinstance(one, ModuleType) and one.__name__[-5:] == "_bugs"
        )
        return bugs.__name__.removeprefix("sim."), simulation.FOUND
    if hasattr(simulation, "BUGS"):
        known = getattr(simulation, "KNOWN", {})
        return simulation.__name__.removeprefix("sim."), {bug: known.get(bug) for bug in simulation.BUGS}
    return None


def looked_for() -> dict[str, int | None]:
    """`module.bug` -> its seed."""
    found = [registry(simulation) for simulation in simulations()]
    return {
        f"{module}.{bug}": seed
        for each in found
        if each is not None
        for module, bugs in [each]
        for bug, seed in bugs.items()
    }


def planted(module: ModuleType) -> dict[str, Callable[..., object]]:
    """Functions that plant a bug, by name."""
    return {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and list(inspect.signature(function).parameters) == ["patch"]
    }


def mistakes() -> dict[int, list[str]]:
    """Number -> how it is planted, from the table of testing.md."""
    section = (
        (ROOT / "docs" / "testing.md").read_text().partition("## Planted bugs of a cluster")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    return {int(number): re.findall(r"`([\w.]+)`", bugs) for number, bugs in rows}


def test_every_mistake_is_planted_and_looked_for() -> None:
    rows, known = mistakes(), looked_for()
    assert set(rows) == MISTAKES
    assert {number: bugs for number, bugs in rows.items() if not bugs or not known.keys() >= set(bugs)} == {}


def test_a_bug_is_planted_for_one_mistake() -> None:
    named = [bug for bugs in mistakes().values() for bug in bugs]
    assert len(named) == len(set(named))


def test_nothing_is_planted_that_nobody_looks_for() -> None:
    known = looked_for()
    for path in sorted(SIMULATIONS.glob("*_bugs.py")):
        if path.stem.startswith("test_"):
            continue
        module = importlib.import_module(f"sim.{path.stem}")
        bugs = planted(module)
        assert bugs, path
        assert {f"{path.stem}.{bug}" for bug in bugs} == {bug for bug in known if bug.startswith(f"{path.stem}.")}
