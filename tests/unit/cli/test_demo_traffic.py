"""Traffic of the cluster demo: the reader finds what is missing or comes twice, and writers measure standstills."""

from __future__ import annotations

import threading

import pytest

from cairnmq.cli import demo_traffic
from cairnmq.cli.demo_story import Gap
from cairnmq.cli.demo_traffic import Checker, Worker, Writer
from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError
from cairnmq.types import TopicPartition
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    Message,
    ProduceRequest,
    ProduceResponse,
)
from scripted_broker import ScriptedBroker, metadata

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_every_number_once_and_in_order() -> None:
    checker = Checker("t", 2)
    for place, number in [(A, 0), (A, 1), (B, 0), (A, 2), (B, 1)]:
        checker.take(place, number)
    assert (checker.read, checker.wrong) == (5, 0)


@pytest.mark.parametrize("numbers", [[0, 2], [0, 0], [1]])
def test_what_is_missing_or_comes_twice_counts(numbers: list[int]) -> None:
    checker = Checker("t", 2)
    for number in numbers:
        checker.take(A, number)
    assert checker.wrong == 1


def test_a_writer_sends_again_what_was_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response is lost: the same record comes again under the same number."""
    stopping = threading.Event()

    def script(request: Message, header: RequestHeader) -> Message | None:
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        if isinstance(request, ProduceRequest):
            sent = len(broker.requests(ProduceRequest))
            if sent == 1:
                return None
            if sent == 3:
                stopping.set()
            row = ProduceResponse.PartitionProduceResponse(index=0)
            named = ProduceResponse.TopicProduceResponse(
                name="t", topic_id=request.topic_data[0].topic_id, partition_responses=[row]
            )
            return ProduceResponse(responses=[named])
        return metadata({"t": [1]}, {1: broker.port})

    monkeypatch.setattr(demo_traffic, "GAP_SECONDS", 0.0)
    monkeypatch.setattr(demo_traffic, "WRITE_SECONDS", 0.0)
    writer = Writer(A)
    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        writer.write(client, stopping)
        sent = [bytes(each.topic_data[0].partition_data[0].records) for each in broker.requests(ProduceRequest)]  # type: ignore[attr-defined]
    assert writer.acked == 2 and len(writer.gaps) == 2
    assert sent[0] == sent[1] != sent[2]


def test_only_long_standstills_are_kept() -> None:
    writer = Writer(A)
    writer.acked_at = 10.0
    for now in (10.1, 10.2, 11.5, 11.6):
        writer._acknowledged(now)
    assert list(writer.gaps) == [Gap(10.2, 11.5)] and writer.acked == 4


def test_a_worker_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_traffic, "RETRY_SECONDS", 0.0)
    turns: list[int] = []

    def work(client: Client, stopping: threading.Event) -> None:
        turns.append(len(turns))
        if len(turns) == 3:
            stopping.set()
            return
        raise ClientError("away")

    with ScriptedBroker(lambda request, header: metadata({}, {1: broker.port})) as broker:
        worker = Worker(broker.bootstrap, "w", work)
        worker.start()
        worker.wait(30)
    assert turns == [0, 1, 2] and worker.trouble == "away"
