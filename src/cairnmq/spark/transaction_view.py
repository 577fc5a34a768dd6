"""What the driver of an exactly-once sink asks brokers: decisions on record, transactions and their ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.client.errors import Refused
from cairnmq.client.records import EARLIEST, LATEST, is_abort
from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.codec.batch import CONTROL_BIT, read_header
from cairnmq.codec.compression import GZIP, NONE
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.spark.decision import Decision, Fenced, prefix
from cairnmq.spark.errors import SparkSourceError
from cairnmq.types import TopicPartition

TOPIC = "__cairnmq_spark_decisions"
STALL_SECONDS = 60.0
_COMPRESSED_FROM = 64 * 1024  # bytes: many tasks have names that are much alike
# Segments are small, so that compaction, which spares the last one, leaves little to read.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
_ABORTED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
_FORGOTTEN = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})


class TransactionView:
    """A decision is itself a transaction, of a transactional id that every driver of the query uses: whoever takes it
    over ends what another had begun to store, and no other can store any more."""

    def __init__(self, client: Client, timeout_ms: int, seat: Transaction | None = None) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self.seat = seat
        """Of whoever is in charge: the transaction of the next decision."""

    def take_over(self, query: str) -> None:
        self.seat = self._client.begin_transactions(f"cairnmq-spark-driver-{query}", self._timeout_ms)

    def last_decision(self, query: str) -> Decision | None:
        """Of whoever is in charge: nothing of its query is open then. Others may be storing theirs at the moment, which
        would hold up a reader of committed records."""
        key, writer = query.encode(), -1
        decided: Decision | None = None
        stored: Decision | None = None  # by this writer, and not known to be aborted
        for batch in self._batches():
            header = read_header(batch)
            if header.attributes & CONTROL_BIT:
                if header.producer_id == writer:
                    decided = decided if is_abort(batch) else stored
                    writer, stored = -1, None
                continue
            for record in decode_batch(batch):
                if record.key == key and record.value is not None:
                    decided = stored or decided
                    writer, stored = header.producer_id, msgspec.json.decode(record.value, type=Decision)
        return stored or decided

    def store(self, decision: Decision) -> None:
        assert self.seat is not None, "only a driver that has taken over may decide"
        self._make_topic()
        text = msgspec.json.encode(decision)
        batch = build_batch(
            [Record(0, int(time.time() * 1000), decision.query.encode(), text)],
            codec=GZIP if len(text) >= _COMPRESSED_FROM else NONE,
            producer_id=self.seat.producer_id,
            producer_epoch=self.seat.epoch,
            base_sequence=0,
            transactional=True,
        )
        try:
            self._client.produce_all({TopicPartition(TOPIC, 0): batch}, transactional_id=self.seat.transactional_id)
            following = self._client.end_transaction(self.seat, commit=True)
        except Refused as refused:
            if refused.code not in _ABORTED | _FORGOTTEN:
                raise
            raise Fenced(
                f"another driver of query {decision.query} has taken over; only one driver can write"
            ) from None
        # With the same epoch the next batch would need another sequence: then taking over again is simpler.
        self.seat = None if following == self.seat else following

    def commit(self, transaction: Transaction) -> bool:
        try:
            self._client.end_transaction(transaction, commit=True)
        except Refused as refused:
            if refused.code in _FORGOTTEN:
                raise SparkSourceError(
                    f"the broker has forgotten {transaction.transactional_id}, which was about to be committed, and "
                    f"its "
                    "result is unknown; start with a new checkpoint and explicit starting offsets"
                ) from None
            if refused.code not in _ABORTED:
                raise
            return False
        return True

    def abort(self, transaction: Transaction) -> None:
        try:
            self._client.end_transaction(transaction, commit=False)
        except Refused as refused:
            if refused.code not in _ABORTED | _FORGOTTEN:
                raise

    def open(self, query: str) -> Sequence[OpenTransaction]:
        return self._client.open_transactions(prefix(query))

    def _batches(self) -> Iterator[memoryview]:
        """Of the topic, up to its present end."""
        if not self._has_topic():
            return
        at = self._client.list_offsets(TOPIC, [0], EARLIEST)[0].offset
        end = self._client.list_offsets(TOPIC, [0], LATEST)[0].offset
        moved = time.monotonic()
        while at < end:
            for fetched in self._client.fetch({TOPIC: {0: at}}, partition_max_bytes=8 * 1024 * 1024):
                if fetched.error:
                    raise Refused(fetched.error, f"partition {TOPIC}-0")
                for batch in fetched.batches:
                    at, moved = read_header(batch).last_offset + 1, time.monotonic()
                    yield batch
            if time.monotonic() - moved > STALL_SECONDS:
                raise SparkSourceError(f"partition {TOPIC}-0 returned no record at offset {at}, but it ends at {end}")

    def _make_topic(self) -> None:
        if not self._has_topic():
            made = self._client.create_topics([NewTopic(TOPIC, 1, configs=CONFIGS)], twice_is_harmless=True)[TOPIC]
            if isinstance(made, Refused) and made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise made

    def _has_topic(self) -> bool:
        """An error is no answer: who took it for one would write a decided batch again."""
        topic = self._client.metadata([TOPIC]).topics.get(TOPIC)
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if topic.error:
            self._client.topic(TOPIC)  # waits, or says what is wrong
        return True
