"""How long until a server that was just started has acknowledged a message; asks again every few milliseconds."""

from __future__ import annotations

import time

from bench.results import now
from bench.servers import Server
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.errors import ClientError
from cairnmq.codec.records import Record, build_batch
from cairnmq.wire.messages import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse

PAUSE = 0.002
SECONDS = 300.0


def seconds_to_first_message(server: Server, topic: str) -> float:
    """Launches the server; the topic is made on the spot if it does not exist."""
    start = time.perf_counter()
    server.launch()
    while time.perf_counter() - start < SECONDS:
        try:
            pipe = Pipe(server.port)
        except (OSError, ClientError):
            time.sleep(PAUSE)
            continue
        try:
            while time.perf_counter() - start < SECONDS:
                if _acknowledged(pipe, topic):
                    return time.perf_counter() - start
                time.sleep(PAUSE)
        except (OSError, ClientError):
            continue
        finally:
            pipe.close()
    raise TimeoutError(f"{server.name} acknowledged nothing within {SECONDS:g} s of its start, {now()}")


def _acknowledged(pipe: Pipe, topic: str) -> bool:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    known = pipe.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True))
    assert isinstance(known, MetadataResponse)
    described = known.topics[0]
    if described.error_code or not described.partitions or described.partitions[0].leader_id < 0:
        return False
    records = build_batch([Record(0, int(time.time() * 1000), None, b"first")])
    row = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, topic_id=described.topic_id, partition_data=[row])
    answer = pipe.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]))
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code == 0
