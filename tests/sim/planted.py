"""Whether the simulation finds a planted bug within a number of seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.errors import Fault
from cairnmq.testing.oracle import Violation


def find(run: Callable[[int], object], seeds: int, known: int | None) -> int:
    """The seed that finds it. `known`: the first one that did when it was looked for; it is tried before the others,
    which come if it finds nothing any more because the simulation has changed."""
    for seed in sorted(range(seeds), key=lambda seed: seed != known):
        try:
            run(seed)
        except (Violation, Fault, AssertionError, FileNotFoundError):
            return seed
    pytest.fail(f"{seeds} seeds did not find it")
