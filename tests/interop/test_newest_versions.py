"""Java's newest client and the newest versions that the broker serves: it uses them, and they mean what it thinks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_process import Broker, fixed_port
from cairnmq.wire.codec import decode
from cairnmq.wire.framing import read_request_header
from cairnmq.wire.messages import ApiVersionsRequest
from interop.clients.contract import Sent
from interop.clients.java import JavaClient
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.roster import PROGRAMS
from interop.clients.transactors import Transactor
from interop.recorder import Recorder
from programs import require_program

API_VERSIONS, TXN_OFFSET_COMMIT = 18, 28


def versions(recorder: Recorder, key: int) -> set[int]:
    return {read_request_header(memoryview(frame))[0].api_version for frame in recorder.requests(key)}


@pytest.mark.long  # the client is built
def test_java_commits_offsets_by_topic_id_and_says_which_broker_it_looks_for(
    relayed: tuple[Broker, Recorder], free_name: str
) -> None:
    """TxnOffsetCommit 6 (KIP-1319) and ApiVersions 5 (KIP-1242)."""
    require_program(PROGRAMS["java"])
    broker, recorder = relayed
    admin = LibrdkafkaClient(broker.bootstrap)
    for topic in ("source", "target"):
        admin.create_topic(topic)
    admin.produce("source", [Sent(b"%d" % n) for n in range(50)])
    java = Transactor("java", broker.bootstrap)
    java.transform(free_name, "group", "source", "target", 50)
    assert java.values("target") == sorted(str(n) for n in range(50))
    assert admin.committed("group", "source", 0) == 50
    assert versions(recorder, TXN_OFFSET_COMMIT) == {6}
    wanted = set()
    for frame in recorder.requests(API_VERSIONS):
        header, position = read_request_header(memoryview(frame))
        request, _ = decode(ApiVersionsRequest, header.api_version, memoryview(frame), position)
        wanted.add((request.cluster_id, request.node_id))
    known = wanted - {(None, -1)}
    assert len(known) == 1 and all(cluster and node == 1 for cluster, node in known), wanted


@pytest.mark.long  # the client is built
def test_java_writes_nothing_to_another_cluster_that_has_the_address_now(make_broker: Callable[..., Broker]) -> None:
    """The broker that it bootstraps from names an address at which another cluster answers, as a mix-up in DNS does."""
    require_program(PROGRAMS["java"])
    other = make_broker().start()
    mine = make_broker(port=fixed_port(), flags=["--advertise", other.bootstrap])
    mine.start()
    LibrdkafkaClient(other.bootstrap).create_topic("t")
    (fate,) = JavaClient(f"127.0.0.1:{mine.port}").fates("t", [Sent(b"astray")], millis=3_000)
    assert fate is not None and fate[0] == "TimeoutException"
    assert LibrdkafkaClient(other.bootstrap).bounds("t", 0) == (0, 0)
