"""What a task of the sink does: turns Arrow batches into record batches, and sends them, in a transaction or not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pyarrow as pa

from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError, Refused
from cairnmq.client.transactions import Transaction
from cairnmq.codec.batch import TRANSACTIONAL_BIT
from cairnmq.codec.records import sealed_batch
from cairnmq.codec.row_packing import PackedRecords
from cairnmq.errors import ErrorCode
from cairnmq.spark.arrow import rows_by_topic
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
        outbox = Outbox(lambda topic: len(client.topic(topic, create=True).partitions), turn, options.batch_bytes)
        try:
            for batch in batches:
                for topic, rows in rows_by_topic(shape, batch, int(time.time() * 1000)):
                    packed = 0
                    while (packed := outbox.put(topic, rows, packed)) < rows.count:
                        sender.send(outbox.take())
            sender.send(outbox.take())
        except ClientError as error:
            sender.give_up()
            raise SparkSourceError(f"{error}{_advice(error)}") from None
        except BaseException:
            sender.give_up()
            raise
        return sender.transaction


def _advice(error: ClientError) -> str:
    if isinstance(error, Refused) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return "; the option kafka.max.request.size makes batches smaller, down to one row"
    return ""


class _Sender:
    """Numbers batches, so that each is stored once however often it is sent."""

    def __init__(self, client: Client, options: WriteOptions, transactional_id: str | None) -> None:
        self._client = client
        self._options = options
        self._transactional_id = transactional_id
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self.transaction: Transaction | None = None

    def send(self, request: Mapping[TopicPartition, PackedRecords]) -> None:
        if request:
            producer = self._producer or self._begin()
            batches = {place: self._numbered(producer, place, packed) for place, packed in request.items()}
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

    def _numbered(self, producer: tuple[int, int], place: TopicPartition, packed: PackedRecords) -> bytes:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + packed.count) & 0x7FFFFFFF
        return sealed_batch(
            packed.body,
            packed.count,
            packed.base_timestamp,
            packed.max_timestamp,
            codec=self._options.codec,
            producer=(*producer, sequence),
            flags=0 if self._transactional_id is None else TRANSACTIONAL_BIT,
        )
