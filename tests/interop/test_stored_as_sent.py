"""Batches are kept byte for byte: what a client sent is what a client gets and what lies in the queue log.

The relay between client and broker sees both. The first 16 bytes of a batch (base offset, length, leader epoch) are the
broker's to set; everything behind them, checksum included, must be the producer's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_process import Broker
from cairnmq.wire.codec import decode
from cairnmq.wire.framing import read_request_header
from cairnmq.wire.messages import ProduceRequest
from interop.clients.contract import Client, Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.roster import CLIENTS, PROGRAMS
from interop.recorder import PRODUCE, Recorder
from programs import require_program

BROKERS_BYTES = 16
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FILES = {"dedicated": "queues/dedicated-0/*.log", "shared": "packs/*.pack"}
"""storage model, and a topic of that name -> where its batches lie"""


@pytest.fixture
def client(request: pytest.FixtureRequest, relayed: tuple[Broker, Recorder]) -> Iterator[Client]:
    if request.param in PROGRAMS:
        require_program(PROGRAMS[request.param])
    made = CLIENTS[request.param](relayed[0].bootstrap)
    yield made
    made.close()


def batches_sent(recorder: Recorder) -> Iterator[bytes]:
    for frame in recorder.requests(PRODUCE):
        header, position = read_request_header(memoryview(frame))
        request, _ = decode(ProduceRequest, header.api_version, memoryview(frame), position)
        for topic in request.topic_data:
            for partition in topic.partition_data:
                if partition.records is not None:
                    yield bytes(partition.records)


@pytest.mark.case("Stored as sent, byte for byte, with every codec and in every storage model")
def test_stored_as_sent(client: Client, relayed: tuple[Broker, Recorder]) -> None:
    broker, recorder = relayed
    values = [b"%d" % n * 300 for n in range(20)]
    admin = LibrdkafkaClient(broker.bootstrap)
    for model in FILES:
        admin.create_topic(model, configs={"cairn.model": model})
        for codec in CODECS:
            headers = (("codec", codec.encode()),)
            client.produce(model, [Sent(value, model.encode(), headers) for value in values], codec=codec)
    sent = list(batches_sent(recorder))
    assert {batch[22] & 7 for batch in sent} == set(CODECS.values()), "a codec was not used at all"

    for model in FILES:
        assert [record.value for record in client.read(model)] == values * len(CODECS)
    read = [bytes(stream) for stream in recorder.received]
    for batch in sent:
        assert any(batch[BROKERS_BYTES:] in stream for stream in read), "a consumer got other bytes than were sent"

    assert broker.stop() == 0
    stored = {model: b"".join(path.read_bytes() for path in broker.data.glob(FILES[model])) for model in FILES}
    where = [{model for model in FILES if batch[BROKERS_BYTES:] in stored[model]} for batch in sent]
    assert all(len(models) == 1 for models in where), "a log holds other bytes than were sent"
    dedicated = [batch for batch, models in zip(sent, where, strict=True) if models == {"dedicated"}]
    assert len(stored["dedicated"]) == sum(len(batch) for batch in dedicated)
