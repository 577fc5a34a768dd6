"""Visitors of pages, and a copy of the repository as a clone would have it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pages.page import ROOT
from pages.visitor import Visitor
from tidy.tree import committed


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    """One who has everything installed already: the programs of the environment that runs this test."""
    visitor = Visitor(tmp_path / "home", Path(sys.executable).parent)
    yield visitor
    visitor.close()


@pytest.fixture
def make_visitor() -> Iterator[Callable[[Path], Visitor]]:
    """Those that come with nothing."""
    made: list[Visitor] = []

    def make(directory: Path) -> Visitor:
        made.append(Visitor(directory))
        return made[-1]

    yield make
    for visitor in made:
        visitor.close()


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies of what is committed, without anything that was built."""

    def copy(name: str) -> Path:
        target = tmp_path_factory.mktemp(name) / "cairnmq"
        for path in committed():
            place = target / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
        return target

    return copy
