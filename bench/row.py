"""What a row of the bench is: a measurement with a name, and how its results are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bench.goals import Goal
from bench.picture import bars
from bench.results import CAIRN, KAFKA, Run, Store
from bench.servers import Servers


class Row(Struct, frozen=True):
    """`measure` takes every turn through the store, which skips those that are already there.

    Its servers are one pair for all rows of a run, warmed up once; a row that needs new ones makes its own.
    """

    name: str
    measure: Callable[[Store, Servers], None]
    body: Callable[[Run], str]
    pictures: Callable[[Run], dict[str, str]]
    goals: tuple[Goal, ...] = ()


def rounds(store: Store, full: int = 3) -> range:
    return range(1, 2 if store.run.quick else full + 1)


def beside(run: Run, title: str, points: Sequence[str], key: str) -> str:
    """Bars of one figure over points, ours beside Kafka's where it was measured."""
    series = {server: [run.median(server, point, key) for point in points] for server in (CAIRN, KAFKA)}
    return bars(title, points, {server: values for server, values in series.items() if any(values)})
