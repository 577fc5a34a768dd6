"""Writing as Spark's Python data source API wants it; what it decides is in decision.py and the modules beside it."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cairnmq.client.errors import ClientError
from cairnmq.client.transactions import Transaction
from cairnmq.spark.decision import Decision, TimeLimit, give_up, go_on_at_once, settle, settle_at_once
from cairnmq.spark.errors import OptionError, SparkSourceError
from cairnmq.spark.options import WriteOptions
from cairnmq.spark.row_shape import RowShape, row_shape
from cairnmq.spark.topic_view import connect
from cairnmq.spark.transaction_view import TransactionView
from cairnmq.spark.worker import this_worker

if TYPE_CHECKING:
    import pyarrow as pa

# Local properties of the tasks of a streaming query.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
# Of a batch query, which has one of each.
_ONLY_BATCH, _ONLY_RUN = 0, "batch"

_seats: dict[str, tuple[str, Transaction]] = {}
"""Query -> a run, and with what that decides next; that a process forgets it costs only time."""


class Written(WriterCommitMessage):
    """What a task tells the driver: which query it works for, its transaction, if it needed one, and its rows."""

    def __init__(self, query: str, run: str, transaction: Transaction | None, rows: int) -> None:
        self.query = query
        self.run = run
        self.transaction = transaction
        self.rows = rows


def shape_of(schema: StructType, options: WriteOptions, overwrite: bool) -> RowShape:
    if overwrite:
        raise OptionError('a topic cannot be overwritten, only appended to: mode("append")')
    return row_shape({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)


class BatchWriter(DataSourceArrowWriter):
    """Of one job: its transactions end together, when all tasks are done."""

    def __init__(self, options: WriteOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._shape, iterator, self._job, _ONLY_BATCH, _ONLY_RUN)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if self._options.delivery == "exactly_once" and written:
            with _view(self._options) as view:
                settle_at_once(view, self._decision(written), _limit(self._options))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """If no message is missing, commit() was tried, and may have committed some: then all must be."""
        written = _written(messages)
        if self._options.delivery == "exactly_once":
            with _view(self._options) as view:
                if len(written) < len(messages):
                    give_up(view, self._job, _ONLY_RUN)
                else:
                    go_on_at_once(view, self._decision(written), _limit(self._options))

    def _decision(self, written: Sequence[Written]) -> Decision:
        return Decision(self._job, _ONLY_BATCH, _ONLY_RUN, _transactions(written))


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one for every micro-batch."""

    def __init__(self, options: WriteOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        names = (_QUERY, _BATCH, _RUN)
        query, batch, run = (context.getLocalProperty(name) if context is not None else None for name in names)
        if self._options.delivery == "exactly_once" and not (query and batch and run):
            raise SparkSourceError("Spark gives no query id for this task; exactly-once delivery needs one")
        return _write(self._options, self._shape, iterator, query or "", int(batch or 0), run or "")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if self._options.delivery == "exactly_once" and written:
            query, run = written[0].query, written[0].run
            known, seat = _seats.pop(query, ("", None))
            with _view(self._options, seat if known == run else None) as view:
                rows = sum(each.rows for each in written)
                mine = Decision(query, batchId, run, _transactions(written), self._shape.topic, rows)
                told = settle(view, mine, _limit(self._options), in_charge=view.seat is not None)
                if told is not None:
                    warnings.warn(told, stacklevel=1)
                if view.seat is not None:
                    _seats[query] = run, view.seat

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """If no message is missing, commit() was tried, and may have decided: the next run knows, or the time limit
        ends them. If all are missing, nobody knows the query."""
        written = _written(messages)
        if self._options.delivery == "exactly_once" and 0 < len(written) < len(messages):
            with _view(self._options) as view:
                give_up(view, written[0].query, written[0].run)


def _write(
    options: WriteOptions, shape: RowShape, rows: Iterator[pa.RecordBatch], query: str, batch: int, run: str
) -> Written:
    from cairnmq.spark.task_writer import write_rows  # pyarrow is slow to load, and drivers do without it

    context = TaskContext.get()
    assert context is not None, "only tasks can write"
    own = None
    if options.delivery == "exactly_once":
        own = partial(this_worker().names.next, query, run, batch)
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for each in rows:
            count += each.num_rows
            yield each

    transaction = write_rows(options, shape, counted(), context.partitionId(), own)
    return Written(query, run, transaction, count)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]


def _transactions(written: Sequence[Written]) -> tuple[Transaction, ...]:
    return tuple(each.transaction for each in written if each.transaction is not None)


def _limit(options: WriteOptions) -> TimeLimit:
    return TimeLimit(lambda: int(time.time() * 1000), int(2000 * options.connection.patience))


@contextmanager
def _view(options: WriteOptions, seat: Transaction | None = None) -> Iterator[TransactionView]:
    try:
        with connect(options.connection) as client:
            yield TransactionView(client, options.transaction_timeout_ms, seat)
    except ClientError as error:
        raise SparkSourceError(str(error)) from None
