"""Rows about a restart: each server gets its records once, and is then made ready, killed and started in every turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from bench.results import Points, Store
from bench.row import rounds
from bench.servers import BOTH, Server, Servers, turns


class Killed(Protocol):
    def make_ready(self) -> None:
        """What each turn needs before it; not counted."""

    def run(self) -> Points:
        """Kills the server, starts it again and measures."""


def measure_killed(store: Store, row: str, fill: Callable[[Server], Killed]) -> None:
    known: dict[str, Killed] = {}

    def before(servers: Servers, name: str) -> None:
        if name not in known:
            known[name] = fill(servers.fresh(name))
        known[name].make_ready()

    def run(name: str) -> Points:
        return known[name].run()

    with Servers(row) as servers:
        for number in rounds(store):
            for name in turns(BOTH, number):
                store.take(name, row, number, partial(run, name), partial(before, servers, name))
