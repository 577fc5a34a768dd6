"""Transactional ids of tasks: which are used again, and which never. With drivers and brokers around them:
tests/property/test_spark_decisions.py."""

from __future__ import annotations

from itertools import count

import pytest

from cairnmq.spark import task_names
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.task_names import TaskNames


def names() -> TaskNames:
    owners = count()
    return TaskNames(lambda: f"p{next(owners)}")


def test_a_stream_needs_two_sets_of_ids() -> None:
    process = names()
    used = [{process.next("q", "r", batch) for _ in range(3)} for batch in range(0, 40, 2)]
    assert all(len(each) == 3 for each in used), "tasks of a batch have different ids"
    assert used[0].isdisjoint(used[1]) and len(set().union(*used)) == 6


def test_nobody_else_has_the_same_ids() -> None:
    process, other = names(), TaskNames(lambda: "other")
    ids = [one.next(query, run, 0) for one in (process, other) for query in "qs" for run in "rt"]
    assert len(set(ids)) == 8


def test_queries_that_take_turns_in_a_process_do_not_disturb_each_other() -> None:
    process = names()
    first = process.next("q", "r", 5)
    process.next("s", "r", 9)
    assert process.next("q", "r", 5) != first, "the first one is open"


def test_a_task_of_a_batch_that_is_over_writes_nothing() -> None:
    """Otherwise it would end what is open for the batch of today."""
    process = names()
    process.next("q", "r", 5)
    with pytest.raises(SparkSourceError, match="batch 3 of query q is over: batch 5 has begun"):
        process.next("q", "r", 3)


def test_what_was_forgotten_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_names, "RUNS_MAX", 2)
    process = names()
    used = [process.next("q", run, 0) for run in "abcabc"]
    assert len(set(used)) == 6
