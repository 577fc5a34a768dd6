"""What tasks of the sink must know of the query that they work for."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.client.transactions import Transaction
from cairnmq.spark import sink, task_writer
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.options import write_options
from cairnmq.spark.row_shape import row_shape
from cairnmq.spark.sink import StreamWriter


class Context:
    """Of a task of whose query Spark says only what is given."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.getLocalProperty = properties.get

    def get(self) -> Context:
        return self

    def partitionId(self) -> int:
        return 0


QUERY = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "3", "spark.jobGroup.id": "r"}


def write(monkeypatch: pytest.MonkeyPatch, delivery: str, properties: dict[str, str]) -> Transaction | None:
    def write_rows(*given: Any) -> Transaction | None:
        name = given[-1]
        return None if name is None else Transaction(name(), 1, 0)

    monkeypatch.setattr(sink, "TaskContext", Context(properties))
    monkeypatch.setattr(task_writer, "write_rows", write_rows)
    options = write_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": delivery}, stream=True)
    return StreamWriter(options, row_shape({"value": "string"}, "t")).write(iter(())).transaction


def test_only_exactly_once_must_know_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in QUERY:
        known = {name: text for name, text in QUERY.items() if name != missing}
        assert write(monkeypatch, "at_least_once", known) is None
        with pytest.raises(SparkSourceError, match="Spark gives no query id"):
            write(monkeypatch, "exactly_once", known)
    own = write(monkeypatch, "exactly_once", QUERY)
    assert own is not None and own.transactional_id.startswith("cairnmq-spark-q-r-")
