"""Writing as Spark's Python data source API wants it; what it decides is in decision.py and the modules beside it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cairnmq.client.errors import ClientError
from cairnmq.client.transactions import Transaction
from cairnmq.spark.decision import Decision, settle, settle_at_once
from cairnmq.spark.errors import OptionError, SparkSourceError
from cairnmq.spark.options import WriteOptions
from cairnmq.spark.row_shape import RowShape, row_shape
from cairnmq.spark.topic_view import connect
from cairnmq.spark.transaction_view import TransactionView, transactional_id

if TYPE_CHECKING:
    import pyarrow as pa

# Local properties of the tasks of a streaming query.
_QUERY = "sql.streaming.queryId"
_RUN = "spark.jobGroup.id"

_settled: dict[str, str] = {}
"""Query -> the run whose first batch this process has settled; that a process forgets it costs only time."""


class Written(WriterCommitMessage):
    """What a task tells the driver: which query it works for, and its transaction, if it needed one."""

    def __init__(self, query: str, run: str, transaction: Transaction | None) -> None:
        self.query = query
        self.run = run
        self.transaction = transaction


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
        return _write(self._options, self._shape, iterator, self._job, "batch")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.delivery == "exactly_once":
            _settle(self._options, messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one for every micro-batch."""

    def __init__(self, options: WriteOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query, run = (context.getLocalProperty(name) if context is not None else None for name in (_QUERY, _RUN))
        if not query or not run:
            raise SparkSourceError("Spark does not say which query this task belongs to; exactly once needs that")
        return _write(self._options, self._shape, iterator, query, run)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._options.delivery == "exactly_once":
            _settle(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self._options, messages)


def _write(options: WriteOptions, shape: RowShape, rows: Iterator[pa.RecordBatch], query: str, run: str) -> Written:
    from cairnmq.spark.task_writer import write_rows  # pyarrow is slow to load, and drivers do without it

    context = TaskContext.get()
    assert context is not None, "only tasks write"
    own = None
    if options.delivery == "exactly_once":
        own = transactional_id(query, run, context.partitionId(), context.attemptNumber())
    return Written(query, run, write_rows(options, shape, rows, context.partitionId(), own))


def _settle(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    written = [each for each in messages if isinstance(each, Written)]
    if not written:
        return
    query, run = written[0].query, written[0].run
    transactions = tuple(each.transaction for each in written if each.transaction is not None)
    mine = Decision(query, -1 if batch is None else batch, run, transactions)
    now_ms = int(time.time() * 1000)
    try:
        with connect(options.connection) as client:
            view = TransactionView(client)
            if batch is None:
                settle_at_once(view, mine, now_ms)
            else:
                settle(view, mine, now_ms, first_of_run=_settled.get(query) != run)
                _settled[query] = run
    except ClientError as error:
        raise SparkSourceError(str(error)) from None


def _abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Of tasks that failed there is no message: those have aborted by themselves, or their time limit does."""
    left = [each.transaction for each in messages if isinstance(each, Written) and each.transaction is not None]
    if left:
        with connect(options.connection) as client:
            for transaction in left:
                TransactionView(client).abort(transaction)
