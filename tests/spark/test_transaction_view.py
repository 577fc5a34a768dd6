"""What an exactly-once sink asks of a real broker: decisions on record, and transactions that any process may end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from broker_process import Broker
from cairnmq.client.blocking import Client
from cairnmq.client.transactions import Transaction
from cairnmq.codec.records import Record, build_batch
from cairnmq.spark.decision import Decision
from cairnmq.spark.transaction_view import TransactionView, transactional_id
from cairnmq.types import TopicPartition
from interop.clients.librdkafka import LibrdkafkaClient


@pytest.fixture
def client(shared_broker: Broker) -> Iterator[Client]:
    with Client.connect(shared_broker.bootstrap) as client:
        yield client


def written(client: Client, query: str, task: int, topic: str, value: bytes) -> Transaction:
    """As a task leaves it: open."""
    own = transactional_id(query, "run", task, 0)
    transaction = client.begin_transactions(own, 60_000)
    batch = build_batch(
        [Record(0, 0, None, value)],
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        base_sequence=0,
        transactional=True,
    )
    client.produce_all({TopicPartition(topic, 0): batch}, transactional_id=own)
    return transaction


def test_the_last_decision_of_each_query(client: Client) -> None:
    view = TransactionView(client)
    queries = [uuid.uuid4().hex for _ in range(3)]
    decisions = {}
    for batch in range(3):
        for query in queries[:2]:
            decisions[query] = Decision(query, batch, "run", (Transaction("t", batch, 7),))
            view.store(decisions[query])
    assert [view.last_decision(query) for query in queries] == [decisions[queries[0]], decisions[queries[1]], None]


def test_transactions_end_once_and_as_they_were_told(client: Client, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("view-ends")
    view, query = TransactionView(client), uuid.uuid4().hex
    kept, dropped = (written(client, query, task, "view-ends", b"%d" % task) for task in (1, 2))
    assert {each.transaction for each in view.open(query)} == {kept, dropped}
    assert all(each.timeout_ms == 60_000 and each.start_ms > 0 for each in view.open(query))
    assert view.open(uuid.uuid4().hex) == []
    assert view.commit(kept) and view.commit(kept), "twice is no matter"
    view.abort(dropped)
    view.abort(dropped)
    assert not view.commit(dropped)
    view.abort(kept)
    assert view.open(query) == []
    assert [row.value for row in kafka.read("view-ends")] == [b"1"]


def test_who_begins_with_the_same_id_ends_what_was_open(client: Client, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("view-fenced")
    view, query = TransactionView(client), uuid.uuid4().hex
    first = written(client, query, 0, "view-fenced", b"first")
    second = written(client, query, 0, "view-fenced", b"second")
    assert not view.commit(first)
    assert view.commit(second)
    assert [row.value for row in kafka.read("view-fenced")] == [b"second"]
