"""A client that takes its answers late: what it sent meanwhile is stored like anything else."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from broker_process import Broker
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.client.records import LATEST
from cairnmq.codec.records import Record, build_batch
from cairnmq.wire.messages import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse

PARTITIONS = 4_000  # their metadata is more than the buffers of both ends hold


def produce(topic_id: bytes, value: bytes) -> ProduceRequest:
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=value)])
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])


def placed(answer: object) -> int:
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == 0, part
    return part.base_offset


def test_a_small_batch_behind_an_answer_that_is_not_taken(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings={"socket.send.buffer.bytes": "16384"})
    broker.start()
    try:
        with Client.connect(broker.bootstrap) as client:
            client.create_topics([NewTopic("t", 1), NewTopic("wide", PARTITIONS)])
            topic = client.topic("t").topic_id
            pipe = Pipe(int(broker.bootstrap.rpartition(":")[2]))
            pipe.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for number in range(2):
                pipe.send(MetadataRequest(topics=None))
                time.sleep(0.3)  # the answer is on its way, and nothing but the batch is left to be started
                pipe.send(produce(topic, b"late %d" % number))
                time.sleep(0.3)
                metadata = pipe.receive()
                assert isinstance(metadata, MetadataResponse)
                assert sum(len(topic.partitions) for topic in metadata.topics) == PARTITIONS + 1
                assert placed(pipe.receive()) == 2 * number
                assert placed(pipe.ask(produce(topic, b"at once"))) == 2 * number + 1
            pipe.close()
            assert client.list_offsets("t", [0], LATEST)[0].offset == 4
    finally:
        broker.close()
