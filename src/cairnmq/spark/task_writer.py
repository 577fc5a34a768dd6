"""What a task of the sink does: turns Arrow batches into record batches, and sends them, in a transaction or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError, Refused
from cairnmq.client.records import ProducerId
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
from cairnmq.spark.worker import Numbering, this_worker
from cairnmq.types import TopicPartition

Name = Callable[[], str]


def write_rows(
    options: WriteOptions, shape: RowShape, batches: Iterable[pa.RecordBatch], turn: int, name: Name | None
) -> Transaction | None:
    """Sends all rows; gives the transaction that holds them, open, or None if there is none. `name` gives the
    transactional id, when there are rows."""
    with connect(options.connection) as client:
        sender = _Sender(client, options, name)
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
        sender.done()
        return sender.transaction


def _advice(error: ClientError) -> str:
    if isinstance(error, Refused) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return "; the option kafka.max.request.size makes batches smaller, down to one row"
    return ""


class _Sender:
    """Numbers batches, so that each is stored once however often it is sent."""

    def __init__(self, client: Client, options: WriteOptions, name: Name | None) -> None:
        self._client = client
        self._options = options
        self._name = name
        self._cluster: str | None = None
        self._numbering: Numbering | None = None
        self.transaction: Transaction | None = None

    def send(self, request: Mapping[TopicPartition, PackedRecords]) -> None:
        if request:
            numbering = self._numbering or self._begin()
            batches = {place: self._numbered(numbering, place, packed) for place, packed in request.items()}
            own = None if self.transaction is None else self.transaction.transactional_id
            self._client.produce_all(batches, self._options.acks, own)

    def done(self) -> None:
        """All was answered: the next task of this process goes on with the same producer id. After an error nobody
        knows which sequence is next."""
        if self._numbering is not None and self._cluster is not None:
            this_worker().numberings[self._cluster] = self._numbering

    def give_up(self) -> None:
        """Nobody will hear of this transaction: it should not hold up readers until its time is over."""
        if self.transaction is None:
            return
        try:
            self._client.end_transaction(self.transaction, commit=False)
        except ClientError:
            return  # then its time limit ends it; what made us give up is what must be told

    def _begin(self) -> Numbering:
        if self._name is None:
            # By the cluster's id: another one behind the same address may have given the number to somebody else.
            self._cluster = self._client.metadata([]).cluster_id
            known = None if self._cluster is None else this_worker().numberings.pop(self._cluster, None)
            self._numbering = known or Numbering(self._client.init_producer_id())
        else:
            begun = self._client.begin_transactions(self._name(), self._options.transaction_timeout_ms)
            self.transaction = begun
            self._numbering = Numbering(ProducerId(begun.producer_id, begun.epoch))
        return self._numbering

    def _numbered(self, numbering: Numbering, place: TopicPartition, packed: PackedRecords) -> bytes:
        sequence = numbering.sequences.get(place, 0)
        numbering.sequences[place] = (sequence + packed.count) & 0x7FFFFFFF
        producer = numbering.producer
        return sealed_batch(
            packed.body,
            packed.count,
            packed.base_timestamp,
            packed.max_timestamp,
            codec=self._options.codec,
            producer=(producer.producer_id, producer.epoch, sequence),
            flags=0 if self._name is None else TRANSACTIONAL_BIT,
        )
