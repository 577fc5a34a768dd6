"""What a broker is asked about itself, and how the answers come out."""

from __future__ import annotations

import pytest

from cairnmq.client.blocking import Client
from cairnmq.client.cluster import LogDir
from cairnmq.client.errors import Refused, Unsupported
from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import SERVED
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse, Message, MetadataRequest
from scripted_broker import ScriptedBroker, metadata

LOG_DIRS = 35


def test_apis_by_name_with_their_versions() -> None:
    served = {3: (1, 12), 18: (0, 4), 9999: (0, 2)}
    with ScriptedBroker(lambda request, header: metadata({}, {1: broker.port}), served) as broker:
        with Client.connect(broker.bootstrap) as client:
            apis = client.api_versions(1)
    assert apis == {"Metadata": (1, 12), "ApiVersions": (0, 4), "api 9999": (0, 2)}


def test_directories_with_their_room_and_errors() -> None:
    broken = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir="/b", error_code=56)
    well = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir="/a", total_bytes=100, usable_bytes=40)

    def script(request: Message, header: RequestHeader) -> Message:
        if isinstance(request, MetadataRequest):
            return metadata({}, {1: broker.port})
        return DescribeLogDirsResponse(results=[well, broken])

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        assert client.log_dirs(1) == [LogDir("/a", 0, 100, 40), LogDir("/b", 56, -1, -1)]
        (asked,) = broker.requests(DescribeLogDirsRequest)
        assert asked == DescribeLogDirsRequest(topics=[]), "null would ask for every partition's size"


def test_a_refusal_and_a_broker_without_the_call_are_told_apart() -> None:
    def script(request: Message, header: RequestHeader) -> Message:
        if isinstance(request, MetadataRequest):
            return metadata({}, {1: broker.port})
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        with pytest.raises(Refused, match="broker 1.*CLUSTER_AUTHORIZATION_FAILED"):
            client.log_dirs(1)
    without = {key: versions for key, versions in SERVED.items() if key != LOG_DIRS}
    with ScriptedBroker(script, without) as broker, Client.connect(broker.bootstrap) as client:
        with pytest.raises(Unsupported, match="DescribeLogDirs"):
            client.log_dirs(1)
