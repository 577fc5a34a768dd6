"""Loads over partitions of ours, of Kafka's, and of a third kind that is only shown beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from bench.load import Load, run_load
from bench.picture import bars
from bench.results import Points, Run, Store
from bench.row import rounds
from bench.servers import BOTH, Servers, turns
from bench.sweep import PARTITIONS


class Kinds(Struct, frozen=True):
    """`third` runs in the first round alone, on the server `of_third`."""

    third: str
    of_third: str

    @property
    def names(self) -> tuple[str, ...]:
        return *BOTH, self.third

    def measure(self, store: Store, servers: Servers, load_of: Callable[[str, int], Load]) -> None:
        """`load_of`: of a kind, at a number of partitions."""
        for number in rounds(store):
            for partitions in PARTITIONS:
                for kind in turns(self.names if number == 1 else BOTH, number):
                    server = self.of_third if kind == self.third else kind
                    act = partial(_run, servers, server, load_of(kind, partitions))
                    store.take(kind, f"{partitions:,}", number, act, partial(servers.get, server))

    def picture(self, run: Run, title: str, key: str) -> str:
        points = run.points()
        return bars(title, points, {kind: [run.median(kind, point, key) for point in points] for kind in self.names})


def _run(servers: Servers, server: str, load: Load) -> Points:
    return {f"{load.partitions:,}": run_load(servers.get(server), load)}
