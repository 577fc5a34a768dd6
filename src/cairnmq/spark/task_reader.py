"""What a task does: fetches its ranges and turns them into Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from cairnmq import kernels
from cairnmq.client.blocking import Client
from cairnmq.client.errors import Absent, Refused
from cairnmq.client.records import EARLIEST, Fetched
from cairnmq.codec import columns as columns_module
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import open_batch
from cairnmq.errors import ErrorCode
from cairnmq.spark.arrow import arrow_schema, columns_for, record_batch
from cairnmq.spark.errors import DataLoss, SparkSourceError
from cairnmq.spark.options import ReadOptions
from cairnmq.spark.progress import aged_out, deleted, made_again
from cairnmq.spark.ranges import Range
from cairnmq.spark.topic_view import connect
from cairnmq.spark.worker import this_worker

ARROW_BYTES = 4 * 1024 * 1024  # much smaller or larger batches both cost Spark more
STALL_SECONDS = 60.0

_append = kernels.pick(columns_module.append)


def read_ranges(options: ReadOptions, names: Sequence[str], ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    """The records of all ranges in their order."""
    this_worker()
    schema = arrow_schema(names)
    with connect(options.connection) as client:
        for each in ranges:
            yield from _read(client, options, schema, names, each)


def _read(
    client: Client, options: ReadOptions, schema: pa.Schema, names: Sequence[str], wanted: Range
) -> Iterator[pa.RecordBatch]:
    columns = columns_for(names)
    position = wanted.start
    moved = time.monotonic()
    while position < wanted.end:
        try:
            fetched = _fetch(client, options, wanted, position)
            if fetched is None:
                position = _first_left(client, options, wanted, position)
                continue
        except DataLoss:
            if options.fail_on_data_loss:
                raise
            break  # there is no more of it
        if not fetched.batches:
            if time.monotonic() - moved > STALL_SECONDS:
                raise SparkSourceError(
                    f"partition {wanted.topic}-{wanted.partition} returned no record at offset {position}, "
                    f"but its range ends at {wanted.end}"
                )
            continue
        moved = time.monotonic()
        for batch, counts in fetched.judged():
            if counts:
                header, body = open_batch(batch)
                _append(columns, header, body, position, wanted.end)
            else:
                header = read_header(batch)
            position = max(position, header.last_offset + 1)
            if columns.size >= ARROW_BYTES:
                yield record_batch(schema, columns, wanted.topic, wanted.partition)
                columns = columns_for(names)
            if position >= wanted.end:
                break
    if columns.rows:
        yield record_batch(schema, columns, wanted.topic, wanted.partition)


def _fetch(client: Client, options: ReadOptions, wanted: Range, position: int) -> Fetched | None:
    """What the broker has from `position` on; None: it has no such offset any more."""
    with _seen_missing(wanted):
        found = client.fetch(
            {wanted.topic: {wanted.partition: position}},
            max_bytes=options.fetch_bytes,
            partition_max_bytes=options.fetch_bytes,
            read_committed=options.read_committed,
        )
        # Looked at afterwards: the client may have asked for the topic anew in the middle of a fetch.
        topic_id = client.topic(wanted.topic).topic_id.hex()
    if topic_id != wanted.topic_id:
        raise DataLoss(made_again(wanted.topic))
    (each,) = found  # as many as were asked for
    if each.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return None
    if each.error:
        raise SparkSourceError(str(Refused(each.error, f"partition {wanted.topic}-{wanted.partition}")))
    return each


@contextmanager
def _seen_missing(wanted: Range) -> Iterator[None]:
    try:
        yield
    except Absent as absent:
        if absent.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise DataLoss(deleted(wanted.topic)) from None


def _first_left(client: Client, options: ReadOptions, wanted: Range, position: int) -> int:
    """Where to go on when an offset is out of range, if the query may leave out what is gone."""
    with _seen_missing(wanted):
        first = client.list_offsets(wanted.topic, [wanted.partition], EARLIEST)[wanted.partition].offset
    if first <= position:
        raise DataLoss(f"partition {wanted.topic}-{wanted.partition} has lost its records from offset {position} on")
    if options.fail_on_data_loss:
        raise DataLoss(aged_out(wanted.topic, wanted.partition, position, first))
    return first
