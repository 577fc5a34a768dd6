"""What a task of the sink does: turns Arrow batches into record batches, and sends them, in a transaction or not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError
from cairnmq.client.transactions import Transaction
from cairnmq.codec.records import Record, build_batch
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.options import WriteOptions
from cairnmq.spark.outbox import Outbox
from cairnmq.spark.row_shape import RowShape
from cairnmq.spark.topic_view import connect
from cairnmq.types import TopicPartition


def write_rows(
    options: WriteOptions, shape: RowShape, batches: Iterable[pa.RecordBatch], turn: int, transactional_id: str | None
) -> Transaction | None:
    """Sends all rows; gives the transaction that holds them, open, or None if there is none."""
    with connect(options.connection) as client:
        sender = _Sender(client, options, transactional_id)
        outbox = Outbox(lambda topic: len(client.topic(topic, create=True).partitions), turn)
        try:
            for batch in batches:
                for topic, partition, record in _rows(shape, batch):
                    if outbox.put(topic, partition, record):
                        sender.send(outbox.take())
            sender.send(outbox.take())
        except ClientError as error:
            sender.give_up()
            raise SparkSourceError(str(error)) from None
        except BaseException:
            sender.give_up()
            raise
        return sender.transaction


class _Sender:
    """Numbers batches, so that each is stored once however often it is sent."""

    def __init__(self, client: Client, options: WriteOptions, transactional_id: str | None) -> None:
        self._client = client
        self._options = options
        self._transactional_id = transactional_id
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self.transaction: Transaction | None = None

    def send(self, requests: Iterable[Mapping[TopicPartition, list[Record]]]) -> None:
        for request in requests:
            producer = self._producer or self._begin()
            batches = {place: self._numbered(producer, place, records) for place, records in request.items()}
            self._client.produce_all(batches, self._options.acks, self._transactional_id)

    def give_up(self) -> None:
        """Nobody will hear of this transaction: it should not hold up readers until its time is over."""
        if self.transaction is None:
            return
        try:
            self._client.end_transaction(self.transaction, commit=False)
        except ClientError:
            return  # then its time limit ends it; what made us give up is what must be told

    def _begin(self) -> tuple[int, int]:
        if self._transactional_id is None:
            fresh = self._client.init_producer_id()
            self._producer = fresh.producer_id, fresh.epoch
        else:
            timeout_ms = self._options.transaction_timeout_ms
            self.transaction = self._client.begin_transactions(self._transactional_id, timeout_ms)
            self._producer = self.transaction.producer_id, self.transaction.epoch
        return self._producer

    def _numbered(self, producer: tuple[int, int], place: TopicPartition, records: list[Record]) -> bytes:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + len(records)) & 0x7FFFFFFF
        return build_batch(
            records,
            codec=self._options.codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )


def _rows(shape: RowShape, batch: pa.RecordBatch) -> Iterator[tuple[str, int | None, Record]]:
    count = batch.num_rows
    nothing = [None] * count

    def column(name: str) -> list[Any]:
        place = shape.places.get(name)
        return nothing if place is None else _values(name, batch.column(place))

    topics = [shape.topic] * count if shape.topic is not None else column("topic")
    now = int(time.time() * 1000)
    names = ("partition", "timestamp", "key", "value", "headers")
    for topic, partition, millis, key, value, headers in zip(topics, *map(column, names), strict=True):
        if topic is None:
            raise SparkSourceError("a row has no topic: column topic is null, and there is no option topic")
        yield topic, partition, Record(0, now if millis is None else millis, key, value, headers or ())


def _values(name: str, array: pa.Array) -> list[Any]:
    if name in ("key", "value"):
        return list(array.cast(pa.binary()).to_pylist())
    if name == "timestamp":
        micros = array.cast(pa.int64()).to_pylist()
        return [None if each is None else each // 1000 for each in micros]
    if name == "headers":
        rows = array.to_pylist()
        return [None if row is None else tuple((pair["key"], pair["value"]) for pair in row) for row in rows]
    return list(array.to_pylist())
