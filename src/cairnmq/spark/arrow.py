"""Column buffers as Arrow batches in the shape that Spark asks for, and Arrow batches as the rows that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cairnmq.codec.columns import BinaryColumn, Columns, HeaderColumn
from cairnmq.codec.row_packing import Cells, HeaderCells, Numbers, Rows
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.row_shape import RowShape

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


def columns_for(names: Sequence[str]) -> Columns:
    """Empty columns; what nobody asked for is not even copied."""
    return Columns(keys="key" in names, values="value" in names, headers="headers" in names)


def record_batch(schema: pa.Schema, columns: Columns, topic: str, partition: int) -> pa.RecordBatch:
    """The batch; takes the buffers as they are, so that nothing may be added to `columns` afterwards."""
    rows = columns.rows
    return pa.RecordBatch.from_arrays(
        [_array(field.name, field.type, columns, topic, partition, rows) for field in schema], schema=schema
    )


def _array(name: str, kind: pa.DataType, columns: Columns, topic: str, partition: int, rows: int) -> pa.Array:
    match name:
        case "key" | "value":
            column = columns.keys if name == "key" else columns.values
            assert column is not None
            return _binary(kind, rows, column)
        case "topic":
            return pa.repeat(pa.scalar(topic, kind), rows)
        case "partition":
            return pa.repeat(pa.scalar(partition, kind), rows)
        case "offset":
            return _fixed(kind, rows, columns.offsets)
        case "timestamp":
            return _fixed(kind, rows, columns.timestamps)
        case "timestampType":
            return _fixed(kind, rows, columns.types)
        case _:
            assert columns.headers is not None
            return _headers(kind, rows, columns.headers)


def _fixed(kind: pa.DataType, rows: int, data: bytearray) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], 0)


def _binary(kind: pa.DataType, rows: int, column: BinaryColumn) -> pa.Array:
    valid = pa.py_buffer(column.valid) if column.nulls else None
    buffers = [valid, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _headers(kind: pa.DataType, rows: int, column: HeaderColumn) -> pa.Array:
    names = _binary(pa.string(), column.rows, column.names)
    values = _binary(pa.binary(), column.rows, column.values)
    pairs = pa.Array.from_buffers(HEADER, column.rows, [None], 0, children=[names, values])
    valid = pa.py_buffer(column.valid) if column.nulls else None
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(column.ends)], column.nulls, children=[pairs])


def rows_by_topic(shape: RowShape, batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[str, Rows]]:
    """Rows to write. Those of one topic keep their order; nothing is copied unless a column names the topics."""
    if shape.topic is not None:
        yield shape.topic, _rows(shape, batch, now_ms)
        return
    topics = batch.column(shape.places["topic"])
    if topics.null_count:
        raise SparkSourceError("a row has no target topic: column topic is null and option topic is not set")
    for topic in topics.unique():
        yield topic.as_py(), _rows(shape, batch.filter(pc.equal(topics, topic)), now_ms)


def _rows(shape: RowShape, batch: pa.RecordBatch, now_ms: int) -> Rows:
    def column(name: str, read: Any) -> Any:
        place = shape.places.get(name)
        return None if place is None else read(batch.column(place))

    return Rows(
        batch.num_rows,
        now_ms,
        values=column("value", _cells),
        keys=column("key", _cells),
        headers=column("headers", _header_cells),
        timestamps=column("timestamp", lambda array: _numbers(array.cast(pa.int64()))),
        partitions=column("partition", _numbers),
    )


def _cells(array: pa.Array) -> Cells:
    array = array.cast(pa.binary())
    valid, ends, data = array.buffers()
    return Cells(array.offset, _view(valid), _ends(ends), memoryview(data or b""))


def _numbers(array: pa.Array) -> Numbers:
    valid, data = array.buffers()
    return Numbers(array.offset, _view(valid), memoryview(data or b""))


def _header_cells(array: pa.Array) -> HeaderCells:
    valid, ends = array.buffers()[:2]
    names, values = array.values.flatten()  # a pair that is null has a name that is
    return HeaderCells(array.offset, _view(valid), _ends(ends), _cells(names), _cells(values))


def _view(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer)


def _ends(buffer: pa.Buffer | None) -> memoryview:
    """Arrow may leave them out where there is no row."""
    return memoryview(buffer or bytes(4))
