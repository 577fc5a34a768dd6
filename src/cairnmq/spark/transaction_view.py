"""What the driver of an exactly-once sink asks brokers: decisions on record, transactions and their ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.client.data import EARLIEST, LATEST
from cairnmq.client.errors import Refused
from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.spark.decision import Decision

TOPIC = "__cairnmq_spark_decisions"
# Segments are small, so that compaction, which spares the last one, leaves little to read.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
_ABORTED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


def transactional_id(query: str, run: str, partition: int, attempt: int) -> str:
    """Of one attempt of one task: no other writes with it, so that nobody fences who has finished."""
    return f"{_prefix(query)}{run}-{partition}-{attempt}"


class TransactionView:
    def __init__(self, client: Client) -> None:
        self._client = client

    def last_decision(self, query: str) -> Decision | None:
        if not self._has_topic():
            return None
        key, found = query.encode(), None
        at = self._client.list_offsets(TOPIC, [0], EARLIEST)[0].offset
        end = self._client.list_offsets(TOPIC, [0], LATEST)[0].offset
        while at < end:
            for fetched in self._client.fetch({TOPIC: {0: at}}, partition_max_bytes=8 * 1024 * 1024):
                for batch in fetched.batches:
                    at = read_header(batch).last_offset + 1
                    for record in decode_batch(batch):
                        if record.key == key and record.value is not None:
                            found = msgspec.json.decode(record.value, type=Decision)
        return found

    def store(self, decision: Decision) -> None:
        if not self._has_topic():
            made = self._client.create_topics([NewTopic(TOPIC, 1, 1, CONFIGS)])[TOPIC]
            if isinstance(made, Refused) and made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise made
        record = Record(0, int(time.time() * 1000), decision.query.encode(), msgspec.json.encode(decision))
        producer = self._client.init_producer_id()  # so that it can be sent again when an answer is lost
        numbered = build_batch(
            [record], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0
        )
        self._client.produce(TOPIC, 0, numbered)

    def _has_topic(self) -> bool:
        topic = self._client.metadata([TOPIC]).topics.get(TOPIC)
        return topic is not None and not topic.error

    def commit(self, transaction: Transaction) -> bool:
        try:
            self._client.end_transaction(transaction, commit=True)
        except Refused as refused:
            if refused.code not in _ABORTED:
                raise
            return False
        return True

    def abort(self, transaction: Transaction) -> None:
        try:
            self._client.end_transaction(transaction, commit=False)
        except Refused as refused:
            if refused.code not in _ABORTED:
                raise

    def open(self, query: str) -> Sequence[OpenTransaction]:
        return self._client.open_transactions(_prefix(query))


def _prefix(query: str) -> str:
    return f"cairnmq-spark-{query}-"
