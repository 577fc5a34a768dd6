"""The blocking client over real sockets, against a scripted broker: connecting, losing, waiting, giving up."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest

from broker_process import fixed_port, wait_until
from cairnmq.client import blocking
from cairnmq.client.blocking import Client, parse_bootstrap
from cairnmq.client.errors import ClientError, Disconnected, GaveUp, Unreachable
from cairnmq.client.session import Ask, Plan
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import SERVED
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from scripted_broker import Clock, ScriptedBroker, metadata, topic_id


def offsets_answer(offset: int) -> ListOffsetsResponse:
    row = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])])


def test_an_unreachable_broker_is_a_sentence_with_advice() -> None:
    port = fixed_port()
    with pytest.raises(Unreachable) as raised:
        Client.connect(f"127.0.0.1:{port}")
    advice = "is `cairn serve` running? For another address use -b HOST:PORT"
    expected = f"cannot reach 127.0.0.1:{port}: connection refused; {advice}"
    assert str(raised.value) == expected


def test_every_bootstrap_address_is_tried() -> None:
    with ScriptedBroker(lambda request, header: metadata({}, {})) as broker:
        Client.connect(f"127.0.0.1:{fixed_port()}, {broker.bootstrap}").close()
        assert broker.connections == 1
    with pytest.raises(Unreachable, match=r"127.0.0.1:\d+: connection refused; cannot reach 127.0.0.1:\d+"):
        Client.connect(f"127.0.0.1:{fixed_port()},127.0.0.1:{fixed_port()}")


def test_an_address_that_accepts_and_is_silent_leaves_time_for_the_others() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, ScriptedBroker(lambda request, header: metadata({}, {})) as broker:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        Client.connect(f"{address},{broker.bootstrap}", timeout=6.0).close()
        assert broker.connections == 1
        with pytest.raises(Unreachable, match=f"lost {address} while waiting.*: no response in time; is `cairn"):
            Client.connect(address, timeout=1.0)


def test_a_node_that_has_left_the_cluster_is_a_sentence() -> None:
    with ScriptedBroker(lambda request, header: metadata({}, {})) as broker:
        with (
            Client.connect(broker.bootstrap) as client,
            pytest.raises(Unreachable, match="node 9 is no longer part of the"),
        ):
            client.log_dirs(9)


def test_sending_ends_with_the_timeout_of_its_own_request() -> None:
    """The broker does not read on; the time limit that the answer before had was a longer one."""
    goes_on = threading.Event()

    def script(request: Message, header: RequestHeader) -> Message | None:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        goes_on.wait(60)
        return None

    large = build_batch([Record(0, 0, None, bytes(32 * 1024 * 1024))])
    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap, timeout=50.0) as client:
        client.produce("t", 0, build_batch([Record(0, 0, None, b"x")]), acks=0)
        client.timeout = 0.3
        began = time.monotonic()
        with pytest.raises(Disconnected, match="while sending: no response in time"):
            client.produce("t", 0, large)
        assert time.monotonic() - began < 25, "and not when the 50 s of the last answer are over"
        goes_on.set()


def test_the_bootstrap_connection_serves_the_node_with_the_same_address() -> None:
    def script(request: Message, header: RequestHeader) -> Message:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        return offsets_answer(5)

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap, "my-name") as client:
        assert client.list_offsets("t", [0], -1)[0].offset == 5
        assert broker.connections == 1
        looked_up = len(broker.requests(MetadataRequest))
        client.list_offsets("t", [0], -1)
        assert len(broker.requests(MetadataRequest)) == looked_up, "a known leader is not looked up again"


def test_an_advertised_address_that_is_not_reachable_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "time", Clock())
    port = fixed_port()
    with ScriptedBroker(lambda request, header: metadata({"t": [4]}, {4: port})) as broker:
        with Client.connect(broker.bootstrap, timeout=60) as client:
            with pytest.raises(GaveUp, match=f"127.0.0.1:{port}.*node 4 advertises this address.*gave up after 60 s"):
                client.list_offsets("t", [0], -1)
            assert len(broker.requests(MetadataRequest)) > 10, "the address may have changed"


def test_a_node_that_takes_connections_and_says_nothing_has_the_right_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            ScriptedBroker(lambda request, header: metadata({"t": [4]}, {4: port})) as broker,
            Client.connect(broker.bootstrap) as client,
        ):
            client.timeout = client.patience = 0.2
            with pytest.raises(ClientError) as failed:
                client.api_versions(4)
    assert f"lost 127.0.0.1:{port} while waiting for its response" in str(failed.value)
    assert "--advertise" not in str(failed.value)


def test_a_lost_connection_is_made_again() -> None:
    failures = 2

    def script(request: Message, header: RequestHeader) -> Message | None:
        nonlocal failures
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        failures -= 1
        return None if failures >= 0 else offsets_answer(8)

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        assert client.list_offsets("t", [0], -1)[0].offset == 8
        assert broker.connections == 3
        assert len(broker.requests(ListOffsetsRequest)) == 3


def test_no_answer_ends_with_the_timeout() -> None:
    def script(request: Message, header: RequestHeader) -> Message | bytes:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        return ScriptedBroker.NO_ANSWER

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        client.topic("t")
        client.timeout = client.patience = 0.2
        with pytest.raises(GaveUp, match="no response in time; gave up after 0.2 s"):
            client.list_offsets("t", [0], -1)
        client.timeout = client.patience = 30
        client.metadata()  # connected again
        client.timeout = client.patience = 0.2
        with pytest.raises(Disconnected, match="no response in time"):
            client.log_dirs(1)
        wait_until(lambda: broker.requests(DescribeLogDirsRequest), 60, "the request to arrive")
        assert len(broker.requests(DescribeLogDirsRequest)) == 1


def test_who_is_patient_asks_again_when_no_answer_came_in_time() -> None:
    silent = True

    def script(request: Message, header: RequestHeader) -> Message | bytes:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        return ScriptedBroker.NO_ANSWER if silent else offsets_answer(8)

    class Hurried(Client):
        """Its first question of offsets must be answered at once; it takes its time for others."""

        def _exchange(self, asks: Sequence[Ask], deadline: float) -> list[object]:
            nonlocal silent
            if not silent or not isinstance(asks[0].request, ListOffsetsRequest):
                return super()._exchange(asks, deadline)
            try:
                return super()._exchange(asks, time.monotonic() + 0.2)
            finally:
                silent = False

    with ScriptedBroker(script) as broker, Hurried.connect(broker.bootstrap, timeout=60) as client:
        client.topic("t")
        assert client.list_offsets("t", [0], -1)[0].offset == 8
        assert broker.connections == 2


def test_metadata_is_asked_for_again_when_the_broker_restarts() -> None:
    answered = 0

    def script(request: Message, header: RequestHeader) -> Message | None:
        nonlocal answered
        answered += 1
        return metadata({"t": [1]}, {1: broker.port}) if answered % 2 else None

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        assert list(client.metadata(iter(["t"])).topics) == ["t"]
        client.session.forget()
        assert client.topic("t").name == "t"
        assert broker.connections == 3


def test_a_broker_that_is_away_is_waited_for_by_who_wants_to() -> None:
    port = fixed_port()
    with pytest.raises(GaveUp, match=f"cannot reach 127.0.0.1:{port}: connection refused; .* gave up after 0.3 s"):
        Client.connect(f"127.0.0.1:{port}", timeout=10, patience=0.3, wait=True)


def test_acks_0_does_not_wait_and_does_not_confuse_the_next_answer() -> None:
    def script(request: Message, header: RequestHeader) -> Message | bytes:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        if isinstance(request, ProduceRequest):
            return ScriptedBroker.NO_ANSWER
        return DescribeClusterResponse(cluster_id="still here")

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        assert client.produce("t", 0, build_batch([Record(0, 0, None, b"x")]), acks=0) is None
        assert client.describe_cluster().cluster_id == "still here"
        assert [r.acks for r in broker.requests(ProduceRequest) if isinstance(r, ProduceRequest)] == [0]


def test_a_connection_that_the_broker_has_closed_is_not_sent_on() -> None:
    """As an idle one is after ten minutes. A plain batch that was sent on it might be stored, so it is not repeated."""

    def script(request: Message, header: RequestHeader) -> Message | None:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        assert isinstance(request, ProduceRequest)
        return None if request.acks == 0 else ProduceResponse()

    batch = build_batch([Record(0, 0, None, b"x")])
    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap, timeout=5.0) as client:
        for acks in (0, 0, 1):
            client.produce("t", 0, batch, acks)
            if acks == 0:
                assert select.select([client._links[1]._socket], [], [], 5)[0], "the end of the connection arrives"
        assert [r.acks for r in broker.requests(ProduceRequest) if isinstance(r, ProduceRequest)] == [0, 0, 1]
        assert broker.connections == 3


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_an_older_broker_is_understood(newest: int) -> None:
    versions = {**SERVED, 18: (0, newest), 3: (0, 8)}
    with ScriptedBroker(lambda request, header: MetadataResponse(cluster_id="old"), versions) as broker:
        with Client.connect(broker.bootstrap) as client:
            assert client.metadata().cluster_id == "old"
            assert {version for key, version, _ in broker.seen} == {8}


def test_an_http_server_is_recognised() -> None:
    with ScriptedBroker(lambda request, header: b"HTTP/1.1 400 Bad Request\r\n\r\n") as broker:
        with pytest.raises(ClientError, match="does not speak Kafka's protocol: it is an HTTP server"):
            Client.connect(broker.bootstrap)


@pytest.mark.parametrize("text", ["", ",", "h:0", "h:70000", ":9092", "h:x"])
def test_wrong_bootstrap_addresses_are_refused(text: str) -> None:
    with pytest.raises(ClientError, match="bootstrap address"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://127.0.0.1:8080", "is a URL; use HOST:PORT, the port for Kafka clients"),
        ("a:1,kafka://b:2", "'kafka://b:2' is a URL"),
        ("::1", "write an IPv6 address as"),
        ("a:1:2", "'a:1:2' is not HOST:PORT"),
    ],
)
def test_what_is_meant_as_an_address_is_told_how_to_be_one(text: str, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        parse_bootstrap(text)


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, b:2,[::1]:3") == [("a", 1), ("b", 2), ("::1", 3)]
    assert parse_bootstrap("localhost,[::1]") == [("localhost", 9092), ("::1", 9092)]


# -------------------------------------------------------------------------------------------------------- three brokers


class Three:
    """Three brokers of which any may be away; partition 0 of topic t is led by `leader`."""

    def __init__(self) -> None:
        self.leader, self.epoch = 1, 1
        self.stored: list[tuple[int, int]] = []  # (node, attempt's epoch)
        self.silent: set[int] = set()
        self.brokers = {node: ScriptedBroker(partial(self._answer, node)) for node in (1, 2, 3)}
        self.ports = {node: broker.port for node, broker in self.brokers.items()}
        self.hints = False

    def __enter__(self) -> Three:
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self.brokers):
            self.kill(node)

    def kill(self, node: int) -> None:
        self.brokers.pop(node).__exit__()

    def elect(self, node: int) -> None:
        self.leader, self.epoch = node, self.epoch + 1

    def _answer(self, node: int, request: Message, header: RequestHeader) -> Message | bytes | None:
        if node in self.silent:
            return ScriptedBroker.NO_ANSWER
        if isinstance(request, MetadataRequest):
            live = {each: self.ports[each] for each in self.brokers}
            answer = metadata({"t": [self.leader]}, live)
            answer.topics[0].partitions[0].leader_epoch = self.epoch
            return answer
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(cluster_id=f"by-{node}")
        assert isinstance(request, ProduceRequest)
        row = ProduceResponse.PartitionProduceResponse(index=0, base_offset=len(self.stored))
        answer_to = ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(topic_id=topic_id("t"), partition_responses=[row])]
        )
        if node == self.leader:
            self.stored.append((node, self.epoch))
            return answer_to
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.hints:
            row.current_leader = ProduceResponse.LeaderIdAndEpoch(self.leader, self.epoch)
            port = self.ports[self.leader]
            answer_to.node_endpoints = [ProduceResponse.NodeEndpoint(self.leader, "127.0.0.1", port)]
        return answer_to

    def asked(self, kind: type[Message]) -> int:
        return sum(len(broker.requests(kind)) for broker in self.brokers.values())


BATCH = build_batch([Record(0, 0, None, b"x")], producer_id=5, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("hints", [True, False])
def test_a_leader_that_moved_is_followed(hints: bool) -> None:
    with Three() as three, Client.connect(three.brokers[2].bootstrap, patience=30.0) as client:
        three.hints = hints
        client.produce("t", 0, BATCH)
        three.elect(3)
        looked_up = three.asked(MetadataRequest)
        client.produce("t", 0, BATCH)
        assert three.stored == [(1, 1), (3, 2)]
        assert three.asked(MetadataRequest) == looked_up + (not hints)


def test_a_leader_that_died_is_waited_out_until_another_is_elected() -> None:
    with Three() as three, Client.connect(three.brokers[1].bootstrap, patience=60.0) as client:
        client.produce("t", 0, BATCH)
        three.kill(1)
        elects = threading.Timer(0.5, three.elect, [2])  # until then the dead one is told as the leader
        elects.start()
        client.produce("t", 0, BATCH)
        elects.join()
        assert three.stored == [(1, 1), (2, 2)]


def test_brokers_of_the_last_metadata_serve_when_the_bootstrap_address_is_away() -> None:
    with Three() as three, Client.connect(three.brokers[1].bootstrap, patience=30.0) as client:
        three.elect(3)
        three.kill(1)
        assert {client.describe_cluster().cluster_id for _ in range(2)} == {"by-2"}
        client.produce("t", 0, BATCH)
        three.kill(2)
        assert client.describe_cluster().cluster_id == "by-3"
        assert list(client.metadata().nodes) == [3]


def test_each_of_a_bootstrap_list_may_be_away() -> None:
    with Three() as three:
        everybody = ",".join(broker.bootstrap for broker in three.brokers.values())
        three.kill(1)
        three.kill(2)
        with Client.connect(everybody, patience=30.0) as client:
            assert client.describe_cluster().cluster_id == "by-3"


def test_a_broker_that_stands_still_does_not_get_all_the_time_for_what_any_broker_knows() -> None:
    """It keeps its connections: only the time that passes tells."""
    with Three() as three, Client.connect(three.brokers[1].bootstrap, timeout=9.0, patience=9.0) as client:
        three.silent.add(1)
        assert len(client.metadata(["t"]).nodes) == 3
        assert three.brokers[1].requests(MetadataRequest) and three.asked(MetadataRequest) >= 3


def test_who_is_interrupted_while_several_are_asked_takes_no_late_response_for_another_one() -> None:
    """`cairn consume -g` under Ctrl-C: what a second leader still had to send met the commit."""
    own, asked = threading.get_ident(), threading.Event()

    def script(node: int, request: Message, header: RequestHeader) -> Message | bytes:
        if isinstance(request, MetadataRequest):
            return metadata({}, {number: broker.port for number, broker in brokers.items()})
        if node == 1:
            asked.wait(60)  # so that the client waits for 1, and has not read the response of 2
            signal.pthread_kill(own, signal.SIGINT)
            return ScriptedBroker.NO_ANSWER
        asked.set()
        return DescribeClusterResponse(cluster_id=f"by-{node}")

    def both() -> Plan[None]:
        yield [Ask(1, DescribeClusterRequest()), Ask(2, DescribeClusterRequest())]

    def one() -> Plan[object]:
        (answer,) = yield [Ask(2, DescribeClusterRequest())]
        return answer

    brokers = {node: ScriptedBroker(partial(script, node)) for node in (1, 2)}
    with brokers[1], brokers[2], Client.connect(brokers[1].bootstrap) as client:
        assert len(client.metadata([]).nodes) == 2
        with pytest.raises(KeyboardInterrupt):
            client.run(both())
        answer = client.run(one())
        assert isinstance(answer, DescribeClusterResponse) and answer.cluster_id == "by-2"
