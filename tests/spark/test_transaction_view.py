"""What an exactly-once sink asks of a real broker: decisions on record, and transactions that any process may end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from broker_process import Broker, wait_until
from cairnmq.client.blocking import Client
from cairnmq.client.transactions import Transaction
from cairnmq.codec.records import Record, build_batch
from cairnmq.spark.decision import Decision, Fenced, TimeLimit, run_prefix, settle
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.options import write_options
from cairnmq.spark.row_shape import row_shape
from cairnmq.spark.sink import BatchWriter, StreamWriter, Written
from cairnmq.spark.transaction_view import TransactionView
from cairnmq.types import TopicPartition
from interop.clients.librdkafka import LibrdkafkaClient

LIMIT = TimeLimit(lambda: int(time.time() * 1000), 30_000)


@pytest.fixture
def client(shared_broker: Broker) -> Iterator[Client]:
    with Client.connect(shared_broker.bootstrap) as client:
        yield client


def view_of(client: Client) -> TransactionView:
    return TransactionView(client, 60_000)


def written(
    client: Client, query: str, task: int, topic: str, value: bytes, *, run: str = "run", timeout_ms: int = 60_000
) -> Transaction:
    """As a task leaves it: open."""
    own = f"{run_prefix(query, run)}{task}"
    transaction = client.begin_transactions(own, timeout_ms)
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
    queries = [uuid.uuid4().hex for _ in range(3)]
    views = {query: view_of(client) for query in queries}
    decisions: dict[str, Decision | None] = dict.fromkeys(queries)
    for query, view in views.items():
        view.take_over(query)
    for batch in range(3):
        for query in queries[:2]:
            decisions[query] = stored = Decision(query, batch, "run", (Transaction("t", batch, 7),))
            views[query].store(stored)
    assert {query: view.last_decision(query) for query, view in views.items()} == decisions


def test_who_is_not_in_charge_any_more_stores_nothing(client: Client) -> None:
    query = uuid.uuid4().hex
    first, second, third = (Decision(query, batch, "run", ()) for batch in range(3))
    old, new = view_of(client), view_of(client)
    old.take_over(query)
    old.store(first)
    new.take_over(query)
    with pytest.raises(Fenced, match=f"another driver of query {query} has taken over"):
        old.store(second)
    assert new.last_decision(query) == first
    new.store(third)
    with pytest.raises(Fenced):
        old.store(second)
    assert new.last_decision(query) == third


def test_a_decision_is_stored_whole_or_not_at_all(shared_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that stop between the record and its commit: the next one is not misled, nor held up by those of other
    queries."""
    queries = [uuid.uuid4().hex for _ in range(2)]
    with Client.connect(shared_broker.bootstrap) as slow, Client.connect(shared_broker.bootstrap) as client:
        olds = {query: view_of(slow) for query in queries}
        for query, old in olds.items():
            old.take_over(query)
            old.store(Decision(query, 0, "run", ()))
        with monkeypatch.context() as patch:
            patch.setattr(slow, "end_transaction", stopped)
            for query, old in olds.items():
                with pytest.raises(InterruptedError):
                    old.store(Decision(query, 1, "run", ()))
        new = view_of(client)
        new.take_over(queries[0])
        assert new.last_decision(queries[0]) == Decision(queries[0], 0, "run", ())
        new.store(Decision(queries[0], 1, "new", ()))
        assert new.last_decision(queries[0]) == Decision(queries[0], 1, "new", ())


def stopped(*_: object, **__: object) -> None:
    raise InterruptedError


def test_a_driver_that_was_paused_finds_its_batch_settled(client: Client, kafka: LibrdkafkaClient) -> None:
    """Two runs write the same batch; the first one, in charge until then, comes second."""
    kafka.create_topic("view-paused")
    query = uuid.uuid4().hex
    old, new = view_of(client), view_of(client)
    old.take_over(query)
    mine = [Decision(query, 0, "run", (written(client, query, task, "view-paused", b"%d" % task),)) for task in (1, 2)]
    settle(new, mine[1], LIMIT, in_charge=False)
    settle(old, mine[0], LIMIT, in_charge=True)
    assert [row.value for row in kafka.read("view-paused")] == [b"2"]
    assert old.open(query) == []


def test_a_time_limit_that_is_over_between_decision_and_commit(client: Client, kafka: LibrdkafkaClient) -> None:
    """The broker ends the first or the second of two; the next run, given the same batch, counts instead."""
    kafka.create_topic("view-late")
    view, queries = view_of(client), [uuid.uuid4().hex for _ in range(2)]
    for query, limits in zip(queries, ((1000, 60_000), (60_000, 1000)), strict=True):
        old = [written(client, query, i, "view-late", b"old", timeout_ms=limit) for i, limit in enumerate(limits)]
        view.take_over(query)
        view.store(Decision(query, 0, "run", tuple(old), "view-late", 2))
    wait_until(lambda: [len(view.open(query)) for query in queries] == [1, 1], 60, "the time limit")
    for query in queries:
        new = written(client, query, 0, "view-late", b"new", run="next")
        settle(view_of(client), Decision(query, 0, "next", (new,), "view-late", 1), LIMIT, in_charge=False)
        assert view.open(query) == []
    assert [row.value for row in kafka.read("view-late")] == [b"new", b"new"]


def test_a_batch_query_is_given_up_or_goes_on(client: Client, shared_broker: Broker, kafka: LibrdkafkaClient) -> None:
    """By the messages that Spark hands to abort(): with all of them, commit() may have committed some."""
    kafka.create_topic("view-batch")
    given = {"kafka.bootstrap.servers": shared_broker.bootstrap, "delivery": "exactly_once"}
    for name, missing in ((b"given up", True), (b"gone on", False)):
        writer = BatchWriter(write_options(given, stream=False), row_shape({"value": "binary"}, "view-batch"))
        done = [written(client, writer._job, task, "view-batch", name, run="batch") for task in (0, 1)]
        messages: list[Written | None] = [Written(writer._job, "batch", each, 1) for each in done]
        if missing:
            messages[1] = None
        else:
            assert view_of(client).commit(done[0])  # and then commit() failed
        writer.abort(messages)
        assert view_of(client).open(writer._job) == []
    assert [row.value for row in kafka.read("view-batch")] == [b"gone on", b"gone on"]


def test_transactions_end_once_and_as_they_were_told(client: Client, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("view-ends")
    view, query = view_of(client), uuid.uuid4().hex
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
    view, query = view_of(client), uuid.uuid4().hex
    first = written(client, query, 0, "view-fenced", b"first")
    second = written(client, query, 0, "view-fenced", b"second")
    assert not view.commit(first)
    assert view.commit(second)
    assert [row.value for row in kafka.read("view-fenced")] == [b"second"]


def test_what_the_broker_has_forgotten_is_not_guessed(client: Client) -> None:
    with pytest.raises(SparkSourceError, match="its result is unknown"):
        view_of(client).commit(Transaction("never-heard-of", 1, 0))


def test_a_batch_is_given_up_only_if_it_cannot_have_been_decided(client: Client, shared_broker: Broker) -> None:
    """Spark says so by a message that is missing; it also calls abort() when commit() has failed."""
    query = uuid.uuid4().hex
    options = write_options({"kafka.bootstrap.servers": shared_broker.bootstrap}, stream=True)
    writer = StreamWriter(options, row_shape({"value": "binary"}, "view-given-up"))
    done, lost = (written(client, query, task, "view-given-up", b"") for task in (0, 1))
    writer.abort([Written(query, "run", done, 1)], 0)
    assert {each.transaction for each in view_of(client).open(query)} == {done, lost}
    writer.abort([Written(query, "run", done, 1), None], 0)
    assert view_of(client).open(query) == []
