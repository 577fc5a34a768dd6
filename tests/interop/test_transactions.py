"""Transactions as each client lives in them: ended, fenced, timed out, with offsets, while the broker dies."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from broker_process import Broker, fixed_port, wait_until
from conftest import QUICK_GROUPS, QUICK_TIME_LIMITS
from interop.clients.contract import Refused, Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.process import PROGRAMS_DIR
from interop.clients.transactors import Transactor
from interop.conftest import unused_name
from programs import require_program

FENCED = (47, 90)  # the first to clients that know no better word
SETTINGS = {**QUICK_GROUPS, **QUICK_TIME_LIMITS}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]) -> Iterator[Broker]:
    """Looks often for transactions that took too long."""
    made = broker_kind(tmp_path_factory.mktemp("transactions"), settings=SETTINGS)
    made.start()
    yield made
    made.close()


@pytest.fixture
def client(request: pytest.FixtureRequest) -> str:
    """Its name: transactional producers live in processes of their own."""
    return str(request.param)


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    return made_topic(request, broker)


def made_topic(request: pytest.FixtureRequest, broker: Broker, partitions: int = 2) -> str:
    name = unused_name(request.node.name)
    LibrdkafkaClient(broker.bootstrap).create_topic(name, partitions, {})
    return name


@pytest.mark.case(
    "Transactions: readers of committed records see whole ones, in order, and nothing of aborted ones",
    needs=("transactions",),
)
def test_commit_and_abort(client: str, broker: Broker, topic: str) -> None:
    """Readers of committed records see whole transactions, in order, and nothing of aborted ones."""
    transactor = Transactor(client, broker.bootstrap)
    producer = transactor.producer(topic)
    for number, commit in enumerate((True, False, True, False, False, True)):
        for partition in (0, 1):
            producer.send(topic, partition, *(f"{number}-{partition}-{n}" for n in range(3)))
        producer.end(commit=commit)
    whole = [f"{number}-{partition}-{n}" for number in range(6) for partition in (0, 1) for n in range(3)]
    assert transactor.values(topic) == sorted(value for value in whole if value[0] in "025")
    assert transactor.values(topic, committed=False) == sorted(whole)
    for partition in (0, 1):
        read = [record.value for record in transactor.read(topic) if record.partition == partition]
        assert read == [value for value in whole if value[0] in "025" and value[2] == str(partition)]
    producer.close()


@pytest.mark.case(
    "Transactions: nothing behind an open one is seen by readers of committed records", needs=("transactions",)
)
def test_nothing_is_seen_before_the_end(client: str, broker: Broker, topic: str) -> None:
    transactor = Transactor(client, broker.bootstrap)
    plain = LibrdkafkaClient(broker.bootstrap)
    producer = transactor.producer(topic)
    producer.send(topic, 0, "open")
    plain.produce(topic, [Sent(b"plain", partition=0), Sent(b"beside", partition=1)])
    assert transactor.values(topic) == ["beside"], "the last stable offset holds back what comes behind"
    assert transactor.values(topic, committed=False) == ["beside", "open", "plain"]
    producer.end(commit=True)
    assert transactor.values(topic) == ["beside", "open", "plain"]
    producer.close()


@pytest.mark.case(
    "Transactions: a second producer with the same id fences the first, whose records are never seen",
    needs=("transactions",),
)
def test_a_zombie_is_fenced(client: str, broker: Broker, topic: str) -> None:
    transactor = Transactor(client, broker.bootstrap)
    zombie = transactor.producer(topic)
    zombie.send(topic, 0, "zombie")
    heir = transactor.producer(topic)
    with pytest.raises(Refused) as refused:
        zombie.end(commit=True)
    assert refused.value.code in FENCED
    heir.send(topic, 0, "heir")
    heir.end(commit=True)
    assert transactor.values(topic) == ["heir"]
    zombie.close()
    heir.close()


@pytest.mark.case("Transactions: one that takes too long is aborted, and its producer is told", needs=("transactions",))
def test_time_is_up(client: str, broker: Broker, topic: str) -> None:
    transactor = Transactor(client, broker.bootstrap)
    slow = transactor.producer(topic, timeout_ms=5_000)
    slow.send(topic, 0, "slow")
    LibrdkafkaClient(broker.bootstrap).produce(topic, [Sent(b"plain", partition=0)])
    wait_until(lambda: transactor.values(topic) == ["plain"], 60, "the end of a transaction that takes too long")
    with pytest.raises(Refused):
        slow.end(commit=True)
    slow.close()
    again = transactor.producer(topic)
    again.send(topic, 0, "again")
    again.end(commit=True)
    assert transactor.values(topic) == ["again", "plain"]
    again.close()


@pytest.mark.case(
    "Transactions: consume, transform, produce: records and offsets are committed together", needs=("transactions",)
)
def test_transform(client: str, broker: Broker, request: pytest.FixtureRequest) -> None:
    """Records and the offsets of what they were made from are committed together."""
    source, target = made_topic(request, broker), made_topic(request, broker)
    plain = LibrdkafkaClient(broker.bootstrap)
    plain.produce(source, [Sent(b"%d" % n, partition=n % 2) for n in range(200)])
    transactor = Transactor(client, broker.bootstrap)
    transactor.transform(target, f"group-{target}", source, target, 200)
    assert transactor.values(target) == sorted(str(n) for n in range(200))
    assert [plain.committed(f"group-{target}", source, partition) for partition in (0, 1)] == [100, 100]


@pytest.mark.case(
    "Transactions: the broker is killed (kill -9) between records, before an end and behind it", needs=("transactions",)
)
def test_the_broker_dies_in_a_transaction(
    client: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]
) -> None:
    """kill -9 between records, before an end and behind it: each transaction is whole, as its client was told."""
    broker = broker_kind(tmp_path_factory.mktemp("dies"), settings=SETTINGS, port=fixed_port())
    broker.start()
    try:
        topic = made_topic(request, broker)
        transactor = Transactor(client, broker.bootstrap)
        producer = transactor.producer(topic)
        for number, commit in enumerate((True, False, True)):
            producer.send(topic, 0, f"{number}-first")
            broker.kill_tree()
            broker.start()
            producer.send(topic, 1, f"{number}-second")
            broker.kill_tree()
            broker.start()
            producer.end(commit=commit)
            broker.kill_tree()
            broker.start()
        assert transactor.values(topic) == ["0-first", "0-second", "2-first", "2-second"]
        producer.close()
    finally:
        broker.close()


@pytest.mark.case(
    "Transactions: the broker is killed four times under consume, transform, produce: exactly once",
    needs=("transactions",),
)
def test_the_broker_dies_under_a_transformer(
    client: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]
) -> None:
    """Whatever is under way when the broker is killed, the result is complete and without doubles."""
    count = 2_000
    broker = broker_kind(tmp_path_factory.mktemp("transformed"), settings=SETTINGS, port=fixed_port())
    broker.start()
    try:
        source, target = made_topic(request, broker), made_topic(request, broker)
        plain = LibrdkafkaClient(broker.bootstrap)
        plain.produce(source, [Sent(b"%d" % n, partition=n % 2) for n in range(count)])
        transactor = Transactor(client, broker.bootstrap, own=True, seconds=300)
        done = threading.Event()
        problems: list[BaseException] = []

        def work() -> None:
            try:
                transactor.transform(target, f"group-{target}", source, target, count, batch=10, seconds=240)
            except BaseException as problem:  # noqa: BLE001
                problems.append(problem)
            done.set()

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        # Some clients give up when there is no broker at their start.
        wait_until(lambda: plain.bounds(target, 0)[1] > 0 or done.is_set(), 60, "the first of the result")
        for _ in range(4):
            if done.wait(0.7):
                break
            broker.kill_tree()
            broker.start()
        worker.join(300)
        assert done.is_set(), "no answer from the transformer"
        assert not problems, problems[0]
        seen = Counter(transactor.values(target))
        assert seen == Counter(str(n) for n in range(count))
        transactor.process.kill()
    finally:
        broker.close()


def kafka_transactions(bootstrap: str, *arguments: str) -> str:
    tool = require_program(str(PROGRAMS_DIR / "kafka_tool"))
    command = [tool, "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.long
def test_kafka_transactions(broker: Broker, topic: str) -> None:
    """Kafka's own tool lists and describes transactions, finds the producer of an open one and aborts it."""
    transactor = Transactor("librdkafka", broker.bootstrap)
    producer = transactor.producer(topic, timeout_ms=600_000)  # it ends by the tool alone
    producer.send(topic, 1, "hangs")
    (row,) = [line.split() for line in kafka_transactions(broker.bootstrap, "list").splitlines() if topic in line]
    assert row[0] == topic and "Ongoing" in row
    described = kafka_transactions(broker.bootstrap, "describe", "--transactional-id", topic)
    assert "Ongoing" in described and f"{topic}-1" in described
    producers = kafka_transactions(broker.bootstrap, "describe-producers", "--topic", topic, "--partition", "1")
    assert len(producers.splitlines()) == 2, producers
    assert transactor.values(topic) == []
    LibrdkafkaClient(broker.bootstrap).produce(topic, [Sent(b"behind", partition=1)])
    kafka_transactions(broker.bootstrap, "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    assert transactor.values(topic) == ["behind"]
    producer.close()


def test_transactions_of_many_partitions(broker: Broker, request: pytest.FixtureRequest) -> None:
    """That markers of many queues are one write is counted in tests/unit/broker/handlers/test_read_committed.py."""
    topic = made_topic(request, broker, partitions=1_000)
    transactor = Transactor("librdkafka", broker.bootstrap)
    producer = transactor.producer(topic, timeout_ms=60_000)
    for partition in range(1_000):
        producer.send(topic, partition, str(partition))
    producer.end(commit=True)
    assert len(transactor.values(topic)) == 1_000
    producer.close()
