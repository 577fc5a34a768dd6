"""Why librdkafka's idempotent producer may store a record twice when leaders change; watch and judge know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from broker_process import Broker, fixed_port, wait_until
from cairnmq.errors import ErrorCode
from cluster.epoch_watch import EpochWatch
from cluster.refusing_relay import RefusingRelay
from cluster.writers import Manner, Notes
from crash.ledger import Place
from history.checker import Kind, findings
from history.events import History, Seen, Send
from interop.clients.librdkafka import LibrdkafkaClient, answer

SECONDS = 60.0
BACKOFF_MS = 2_000  # the other partition's refusal comes in the same moment as that of what is to be sent again
STORED, SKIPPED = PLACES = [Place("t", partition) for partition in range(2)]
MANNER = Manner("rdk-idempotent", idempotent=True)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RefusingRelay]:
    port = fixed_port()
    broker = Broker(tmp_path, port=fixed_port(), flags=["--advertise", f"127.0.0.1:{port}"], http=False)
    with closing(broker):
        broker.start()
        with closing(RefusingRelay(port, broker.port)) as made:
            yield made


class Desk:
    """A producer whose records go into a history."""

    def __init__(self, relay: RefusingRelay, in_flight: int) -> None:
        bootstrap = f"127.0.0.1:{relay.port}"
        self.client = LibrdkafkaClient(bootstrap)
        answer(self.client.admin.create_topics([NewTopic("t", len(PLACES), 1)])["t"])
        self.history = History()
        self.notes = Notes(MANNER, PLACES, self.history)
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": in_flight,
            "retry.backoff.ms": BACKOFF_MS,
            "retry.backoff.max.ms": BACKOFF_MS,
            "linger.ms": 0,
        }
        watch = EpochWatch(self.notes.epoch_begun)
        self.producer = Producer({**settings, **EpochWatch.settings}, logger=watch)
        for place in PLACES:
            self.send(place)
        assert self.producer.flush(SECONDS) == 0

    def send(self, place: Place) -> str:
        send = self.notes.send(place)
        told = partial(self._told, send)
        self.producer.produce(place.topic, send.value.encode(), partition=place.partition, on_delivery=told)
        return send.value

    def _told(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self.notes.told(send, message.offset(), error)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: self.producer.poll(0.01) is not None and condition(), SECONDS, what)

    def read(self) -> dict[Place, list[str]]:
        asked, found = self.history.now(), dict[Place, list[str]]()
        for place in PLACES:
            records = self.client.read(place.topic, [place.partition], 0)
            seen = [Seen(got.offset, (got.value or b"").decode()) for got in records]
            self.history.read(asked, place, seen, committed=True, snapshot="the end")
            found[place] = [each.value for each in seen]
        return found


def test_a_batch_refused_for_its_sequence_makes_it_send_again_what_is_stored(relay: RefusingRelay) -> None:
    """One partition's batch is stored and refused. Before it is sent again, another partition's is refused, and the one
    behind it comes when the leader takes batches again."""
    desk = Desk(relay, in_flight=5)
    relay.store_and_refuse(STORED.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    value = desk.send(STORED)
    desk.wait(lambda: len(relay.answers[STORED.partition]) == 2, "it to be stored")
    kept = relay.keep(SKIPPED.partition)
    desk.send(SKIPPED)
    desk.wait(lambda: len(kept) == 1, "a request for the other partition")
    desk.send(SKIPPED)
    desk.wait(lambda: len(kept) == 2, "the one behind it")
    relay.refuse(SKIPPED.partition, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert desk.producer.flush(SECONDS) == 0
    assert (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) in relay.answers[SKIPPED.partition]
    assert relay.answers[STORED.partition][1:] == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.NONE)]
    assert desk.read()[STORED].count(value) == 2
    assert desk.notes.epochs == 1 and not findings(desk.history)
    desk.history.epochs.clear()
    assert {finding.kind for finding in findings(desk.history)} == {Kind.DOUBLED, Kind.INCONSISTENT_OFFSET}


def test_with_one_request_in_flight_no_sequence_is_skipped(relay: RefusingRelay) -> None:
    desk = Desk(relay, in_flight=1)
    kept = relay.keep(SKIPPED.partition)
    for _ in range(2):
        desk.send(SKIPPED)
        desk.wait(lambda: kept, "a request")
    relay.refuse(SKIPPED.partition, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert desk.producer.flush(SECONDS) == 0
    told = [code for _, code in relay.answers[SKIPPED.partition]]
    assert set(told) == {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS}
    desk.read()
    assert desk.notes.epochs == 0 and not findings(desk.history)
