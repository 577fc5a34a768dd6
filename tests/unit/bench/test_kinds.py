"""The third kind runs beside the others in the first round, on the server of one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.kinds import Kinds
from bench.load import Load
from bench.results import CAIRN, KAFKA, Points, Store
from bench.servers import Servers

THIRD = "a third"
KINDS = Kinds(THIRD, of_third=KAFKA)


class Turns(Store):
    """Takes down what would be measured."""

    def __init__(self, quick: bool, home: Path) -> None:
        super().__init__("row", quick, home, dict)
        self.taken: list[tuple[int, str, str]] = []

    def take(
        self,
        server: str,
        name: str,
        number: int,
        measure: Callable[[], Points],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self.taken.append((number, name, server))


@pytest.mark.parametrize("quick", [True, False])
def test_who_has_a_turn(quick: bool, tmp_path: Path) -> None:
    store = Turns(quick, tmp_path)
    loads: list[tuple[str, int]] = []

    def load_of(kind: str, partitions: int) -> Load:
        loads.append((kind, partitions))
        return Load(partitions, 1)

    KINDS.measure(store, Servers("none"), load_of)
    first = [(1, name, kind) for name in ("10", "1,000") for kind in (CAIRN, KAFKA, THIRD)]
    second = [(2, name, kind) for name in ("10", "1,000") for kind in (KAFKA, CAIRN)]
    third = [(3, name, kind) for name in ("10", "1,000") for kind in (CAIRN, KAFKA)]
    assert store.taken == (first if quick else first + second + third)
    assert [kind for _, _, kind in store.taken] == [kind for kind, _ in loads]
