"""Transactional ids of the tasks of one worker process. Pure.

Ids are used again, because brokers remember each for days. Who begins with an id aborts what is open under it, and
nobody can commit that any more. So an id is safe to use again only if

- nobody else can begin with it: it belongs to one process, which runs one task after the other. A task that Spark has
  given up, and that goes on elsewhere, has ids of another process;
- what was written with it is settled, and a later batch as well: a process takes turns between two sets of ids, so that
  there was a batch with rows in between. Spark begins a batch when the one before is settled, and a driver that was
  paused while it finished the older one cannot decide any more, when it finds its id in other use.
"""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.spark.decision import run_prefix
from cairnmq.spark.errors import SparkSourceError

RUNS_MAX = 1000


class _Run:
    """What this process has done for one run of a query."""

    __slots__ = ("batch", "turn", "count")

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.turn = 0
        self.count = 0


class TaskNames:
    """`fresh` gives a name that no other process has, nor this one has had."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self._fresh = fresh
        self._owner = fresh()
        self._runs: dict[tuple[str, str], _Run] = {}

    def next(self, query: str, run: str, batch: int) -> str:
        """For a task that has rows to write, and begins now; another one of the same batch gets another."""
        known = self._runs.get((query, run))
        if known is None:
            if len(self._runs) >= RUNS_MAX:
                self._runs.clear()
                self._owner = self._fresh()  # a run that was forgotten begins with other ids
            known = self._runs[query, run] = _Run(batch)
        if batch < known.batch:
            raise SparkSourceError(f"batch {batch} of query {query} is over: batch {known.batch} has begun")
        if batch > known.batch:
            known.batch, known.turn, known.count = batch, 1 - known.turn, 0
        known.count += 1
        return f"{run_prefix(query, run)}{self._owner}-{known.turn}-{known.count}"
