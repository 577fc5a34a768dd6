"""Decisions on record, where the topic that holds them is not as it should be."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from cairnmq.client.errors import Absent, Refused
from cairnmq.client.transactions import Transaction
from cairnmq.codec.batch import CODEC_MASK, read_header
from cairnmq.codec.records import decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.spark import transaction_view
from cairnmq.spark.decision import Decision, run_prefix
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.transaction_view import TOPIC, TransactionView
from cairnmq.types import TopicPartition
from unit.spark.topic_client import TopicClient

ID = b"1" * 16
SEAT = Transaction("seat", 1, 0)


class Storing(TopicClient):
    def __init__(self) -> None:
        super().__init__({TOPIC: (ID, 0)})
        self.batch = b""

    def produce_all(self, batches: dict[TopicPartition, bytes], **_: Any) -> None:
        self.batch = batches[TopicPartition(TOPIC, 0)]

    def end_transaction(self, transaction: Transaction, *, commit: bool) -> Transaction:
        return transaction


def view_of(client: TopicClient, seat: Transaction | None = None) -> TransactionView:
    return TransactionView(client, 60_000, seat)  # type: ignore[arg-type]


def test_only_a_topic_that_is_missing_holds_no_decision() -> None:
    client = TopicClient({})
    assert view_of(client).last_decision("q") is None
    client.errors[TOPIC] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Absent, match="is not authorized"):
        view_of(client).last_decision("q")


def test_an_error_ends_the_search() -> None:
    client = TopicClient({TOPIC: (ID, 5)})
    client.fetch_error = ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(Refused, match=f"partition {TOPIC}-0 does not hold that offset"):
        view_of(client).last_decision("q")


def test_so_does_a_partition_that_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(TopicClient):
        def fetch(self, *_: Any, **__: Any) -> list[Any]:
            self.fetches += 1
            assert self.fetches < 1000
            return []

    monkeypatch.setattr(transaction_view, "STALL_SECONDS", -1.0)
    with pytest.raises(SparkSourceError, match="returned no record at offset 0, but it ends at 5"):
        view_of(Silent({TOPIC: (ID, 5)})).last_decision("q")


@pytest.mark.parametrize("tasks", [2, 20_000])
def test_a_decision_on_many_tasks_fits_into_a_batch(tasks: int) -> None:
    query, run = "7f4df2c7-2d71-4a54-9c3b-0fb0e7b7f2aa", "d2b1a0de-90b6-4d6f-8a6e-3f9a1b6f1a11"
    named = (f"{run_prefix(query, run)}{uuid.uuid4().hex}-0-{task}" for task in range(tasks))
    decision = Decision(query, 123, run, tuple(Transaction(each, 5000 + i, 0) for i, each in enumerate(named)), "t", 9)
    client = Storing()
    view_of(client, SEAT).store(decision)
    assert len(client.batch) < 1024 * 1024
    assert bool(read_header(client.batch).attributes & CODEC_MASK) == (tasks > 2)
    (record,) = decode_batch(client.batch)
    assert record.key == query.encode() and record.value is not None
    assert msgspec.json.decode(record.value, type=Decision) == decision
