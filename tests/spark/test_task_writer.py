"""What tasks of a sink leave behind at a broker, which has to remember it for days: few transactional ids, few producer
ids. Without Spark: tasks that run one after the other in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from broker_process import Broker
from cairnmq.client.blocking import Client
from cairnmq.client.errors import Refused
from cairnmq.client.transactions import Transaction
from cairnmq.errors import ErrorCode
from cairnmq.spark import worker
from cairnmq.spark.decision import Decision, TimeLimit, settle
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.options import write_options
from cairnmq.spark.row_shape import row_shape
from cairnmq.spark.task_writer import write_rows
from cairnmq.spark.transaction_view import TransactionView
from spark.records import producers

BATCHES = 20
TASKS = 2
LIMIT = TimeLimit(lambda: int(time.time() * 1000), 30_000)


def task(broker: Broker, topic: str, values: list[bytes], name: Callable[[], str] | None = None) -> Transaction | None:
    delivery = "at_least_once" if name is None else "exactly_once"
    options = write_options({"kafka.bootstrap.servers": broker.bootstrap, "delivery": delivery}, stream=True)
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    return write_rows(options, row_shape({"value": "binary"}, topic), [rows], 0, name)


def test_tasks_of_a_process_share_a_producer_id(shared_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_worker", None)
    for number in range(3):
        task(shared_broker, "writer-shared", [b"%d" % number])
    with monkeypatch.context() as patch:
        patch.setattr(Client, "produce_all", refusing)
        with pytest.raises(SparkSourceError, match="MESSAGE_TOO_LARGE"):
            task(shared_broker, "writer-shared", [b"refused"])
    task(shared_broker, "writer-shared", [b"3"])
    *first, last = producers(shared_broker.bootstrap, "writer-shared")
    assert len(first) == 3 and len(set(first)) == 1
    assert last != first[0], "after an error nobody knows which sequence is next"


def refusing(*_: object, **__: object) -> None:
    raise Refused(ErrorCode.MESSAGE_TOO_LARGE, "partition t-0")


@pytest.mark.parametrize("kept", [True, False], ids=["one process", "a process for every task"])
def test_a_stream_goes_on_when_the_table_of_ids_is_full(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Of 10 ids: what a task needs is there, and what it needs no more is forgotten, also by the next start."""
    monkeypatch.setattr(worker, "_worker", None)
    broker = make_broker(settings={"cairn.transactional.ids.max": "10"}).start()
    query, used = uuid.uuid4().hex, {}
    with Client.connect(broker.bootstrap) as client:
        view = TransactionView(client, 900_000)
        for batch in range(BATCHES):
            written = []
            for number in range(TASKS):
                if not kept:
                    monkeypatch.setattr(worker, "_worker", None)
                name = partial(worker.this_worker().names.next, query, "run", batch)
                written.append(task(broker, "writer-full", [b"%d-%d" % (batch, number)], name))
            transactions = tuple(each for each in written if each is not None)
            used |= {each.transactional_id: each for each in transactions}
            mine = Decision(query, batch, "run", transactions)
            settle(view, mine, LIMIT, in_charge=view.seat is not None)
        assert len(used) == (2 * TASKS if kept else BATCHES * TASKS)
        assert client.open_transactions("") == []
        end = client.list_offsets("writer-full", [0], -1, read_committed=True)[0].offset
    assert end == BATCHES * TASKS * 2, "each row, and its marker"
    assert broker.stop() == 0
    broker.start()
    with Client.connect(broker.bootstrap) as client:
        view = TransactionView(client, 900_000)
        assert all(view.commit(each) for each in transactions), "the last ones are known, and how they ended"
        if not kept:
            with pytest.raises(SparkSourceError, match="its result is unknown"):
                view.commit(next(iter(used.values())))
