"""format("cairnmq") as Spark's Python data source API wants it; what it decides is in the modules beside it.

Objects here are pickled to workers, so none holds a connection. Spark passes `schema` and `overwrite` by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cairnmq.client.errors import ClientError
from cairnmq.settings.definition import nearest
from cairnmq.spark.batch_plan import plan_batch
from cairnmq.spark.errors import OptionError, SparkSourceError
from cairnmq.spark.options import HEADERS, ReadOptions, columns_of, read_options, table_options, write_options
from cairnmq.spark.progress import Progress
from cairnmq.spark.ranges import Range
from cairnmq.spark.sink import BatchWriter, StreamWriter, shape_of
from cairnmq.spark.stream_plan import StreamPlan
from cairnmq.spark.topic_view import TopicView, connect

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

SHORT_NAME = "cairnmq"
_TABLE = "cairnmq.options"
"""In the metadata of a column: the options of the table that it belongs to."""
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    **{"key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType()},
    **{"offset": LongType(), "timestamp": TimestampType(), "timestampType": IntegerType()},
    HEADERS: ArrayType(_HEADER),
}


class CairnSource(DataSource):
    """Topics as tables: `spark.read`, `spark.readStream` and both ways of writing."""

    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> StructType:
        fields = [StructField(name, _TYPES[name]) for name in columns_of(self.options)]
        kept = table_options(self.options)
        if kept:
            fields[0].metadata = {_TABLE: kept}
        return StructType(fields)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(read_options(self._given(schema), stream=False), _names(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(read_options(self._given(schema), stream=True), _names(schema))

    def _given(self, schema: StructType) -> dict[str, str]:
        """Spark shows the options of a table to schema(), not to readers: what the schema carries is all they see."""
        kept = {name: text for field in schema.fields for name, text in field.metadata.get(_TABLE, {}).items()}
        own = {name.lower() for name in self.options}
        return {**{name: text for name, text in kept.items() if name.lower() not in own}, **self.options}

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = write_options(self.options, stream=False)
        shape = shape_of(schema, options, overwrite)
        connect(options.connection, wait=False).close()  # who has just begun hears at once that nobody is there
        return BatchWriter(options, shape)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        # `overwrite` is output mode complete: all rows with every micro-batch, appended as Spark's Kafka sink does.
        options = write_options(self.options, stream=True)
        return StreamWriter(options, shape_of(schema, options, overwrite=False))


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[InputPartition]:
        view = _view(self._options)
        try:
            planned = _said(lambda: plan_batch(self._options, view.topics(), view.lookup))
        finally:
            view.close()
        # Spark makes a partition of its own out of an empty list, and would have it read.
        return [Ranges(each) for each in planned] or [Ranges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._names, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    @property
    def _planned(self) -> StreamPlan:
        if self._plan is None:
            self._plan = StreamPlan(self._options, _view(self._options), time.monotonic)
        return self._plan

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark hands back to latestOffset, unless its trigger wants everything. It knows no two limits at once:
        that there is one is all that counts, the plan knows them."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def initialOffset(self) -> dict[str, Any]:
        return _said(self._planned.initial).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        everything = isinstance(limit, ReadAllAvailable)
        return _said(lambda: self._planned.latest(Progress.of_json(start), everything=everything)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._planned.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        _said(self._planned.stop_at_present)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = _said(lambda: self._planned.tasks(Progress.of_json(start), Progress.of_json(end)))
        # A sink that must finish what an earlier run decided hears of the query from its tasks: there must be one.
        return [Ranges(each) for each in planned] or [Ranges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._names, partition)

    def commit(self, end: dict[str, Any]) -> None:
        _said(lambda: self._planned.finished(Progress.of_json(end)))


def _names(schema: StructType) -> tuple[str, ...]:
    """Which columns a schema asks for; one of the user's own may leave out columns, no more."""
    for field in schema.fields:
        known = _TYPES.get(field.name)
        if known is None:
            raise OptionError(f"there is no column {field.name}{nearest(field.name, _TYPES)}")
        if field.dataType != known:
            wanted, given = known.simpleString(), field.dataType.simpleString()
            raise OptionError(f"column {field.name} is {wanted}, not {given}: cast it after reading")
    return tuple(field.name for field in schema.fields)


def _view(options: ReadOptions) -> TopicView:
    return TopicView(options.connection, options.selection, options.read_committed)


def _read(options: ReadOptions, names: tuple[str, ...], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from cairnmq.spark.task_reader import read_ranges  # pyarrow is slow to load, and drivers do without it

    assert isinstance(partition, Ranges)
    return read_ranges(options, names, partition.ranges)


def _said(call: Callable[[], T]) -> T:
    """What the client says is all that a user needs to see."""
    try:
        return call()
    except ClientError as error:
        raise SparkSourceError(str(error)) from None
