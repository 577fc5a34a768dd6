"""`cairn cluster`: what it prints, and the exit code that scripts rely on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cairnmq.cli.cluster import _broker_row
from cairnmq.cli.main import main
from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import SERVED
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    Message,
    MetadataResponse,
)
from scripted_broker import ScriptedBroker, metadata

GIB = 2**30


class Cluster:
    """One broker that answers; the test bends what it says."""

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {"orders": [1, 1], "audit": [1]}
        self.dir_error = 0
        self.controller = 1
        self.topic_error = 0
        self.port = 0

    def script(self, request: Message, header: RequestHeader) -> Message:
        if isinstance(request, DescribeClusterRequest):
            row = DescribeClusterResponse.DescribeClusterBroker(
                broker_id=1, host="127.0.0.1", port=self.port, rack="west"
            )
            return DescribeClusterResponse(cluster_id="the-id", controller_id=self.controller, brokers=[row])
        if isinstance(request, DescribeLogDirsRequest):
            result = DescribeLogDirsResponse.DescribeLogDirsResult(
                log_dir="/data", error_code=self.dir_error, total_bytes=8 * GIB, usable_bytes=2 * GIB
            )
            return DescribeLogDirsResponse(results=[result])
        answer: MetadataResponse = metadata(self.topics, {1: self.port})
        answer.controller_id = self.controller
        for topic in answer.topics:
            topic.error_code = self.topic_error
        return answer


@contextmanager
def running(cluster: Cluster, versions: dict[int, tuple[int, int]] = SERVED) -> Iterator[str]:
    with ScriptedBroker(cluster.script, versions) as broker:
        cluster.port = broker.port
        yield broker.bootstrap


def test_info_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with running(Cluster()) as bootstrap:
        assert main(["cluster", "info", "-b", bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["cluster     the-id", "controller  1", "topics      2", "partitions  3"]
    assert lines[5].split() == ["BROKER", "ADDRESS", "RACK", "APIS", "PRODUCE", "FETCH", "DISK-FREE"]
    low, high = SERVED[1]
    fetch = f"{low}-{high}"
    assert lines[6].split() == ["1", bootstrap, "west", str(len(SERVED)), "0-13", fetch, *"2.0 GiB of 8.0 GiB".split()]


def test_an_address_of_ipv6_has_brackets() -> None:
    broker = {"id": 1, "host": "::1", "port": 9092, "rack": None, "apis": {}, "log_dirs": []}
    assert _broker_row(broker)[1] == "[::1]:9092"


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with running(Cluster()) as bootstrap:
        assert main(["cluster", "info", "--json", "-b", bootstrap]) == 0
    told = json.loads(capsys.readouterr().out)
    (broker,) = told.pop("brokers")
    assert told == {"cluster_id": "the-id", "controller": 1, "topics": 2, "partitions": 3}
    assert broker["apis"]["Produce"] == [0, 13] and len(broker["apis"]) == len(SERVED)
    assert broker["log_dirs"] == [{"path": "/data", "error": 0, "total_bytes": 8 * GIB, "usable_bytes": 2 * GIB}]


def test_info_of_a_broker_without_directories_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    without = {key: versions for key, versions in SERVED.items() if key != 35}
    with running(Cluster(), without) as bootstrap:
        assert main(["cluster", "info", "-b", bootstrap]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("  -")


def test_a_healthy_cluster_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    with running(Cluster()) as bootstrap:
        assert main(["cluster", "health", "-b", bootstrap]) == 0
        assert capsys.readouterr().out == "healthy\n"
        assert main(["cluster", "health", "--json", "-b", bootstrap]) == 0
    assert json.loads(capsys.readouterr().out) == {"healthy": True, "reasons": [], "asked": "protocol"}


def health(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with running(cluster) as bootstrap:
        assert main(["cluster", "health", "-b", bootstrap]) == 1
    first, *reasons = capsys.readouterr().out.splitlines()
    assert first == "unhealthy"
    return [reason.strip() for reason in reasons]


def test_each_reason_is_named_and_the_exit_code_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    cluster.dir_error = ErrorCode.KAFKA_STORAGE_ERROR
    (reason,) = health(cluster, capsys)
    assert reason.startswith("broker 1: /data: storage has stopped") and "KAFKA_STORAGE_ERROR" in reason
    cluster = Cluster()
    cluster.topics["orders"] = [1, -1]
    assert health(cluster, capsys) == ["partition orders-1 has no leader"]
    cluster = Cluster()
    cluster.controller = -1
    assert health(cluster, capsys) == ["the cluster has no controller"]
    cluster = Cluster()
    cluster.topics = {"orders": [1]}
    cluster.topic_error = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert health(cluster, capsys) == ["topic orders: INVALID_TOPIC_EXCEPTION"]


def test_many_reasons_are_cut_for_people_and_whole_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    cluster.topics = {"t": [-1] * 30}
    reasons = health(cluster, capsys)
    assert len(reasons) == 21 and reasons[-1] == "and 10 more"
    with running(cluster) as bootstrap:
        assert main(["cluster", "health", "--json", "-b", bootstrap]) == 1
    assert len(json.loads(capsys.readouterr().out)["reasons"]) == 30


def test_nobody_there_is_unhealthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "health", "-b", "127.0.0.1:1"]) == 1
    assert "cannot reach 127.0.0.1:1" in capsys.readouterr().out
    assert main(["cluster", "info", "-b", "127.0.0.1:1"]) == 1
    assert "cannot reach 127.0.0.1:1" in capsys.readouterr().err


@contextmanager
def answering(code: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server with one answer, and the paths it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent: the command's stderr is looked at."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("code", "body", "exit_code", "said"),
    [
        (200, b'{"ready": true}', 0, []),
        (503, b'{"ready": false, "reasons": ["recovery in progress"]}', 1, ["recovery in progress"]),
        (503, b'{"ready": false}', 1, ["not ready"]),
        (
            502,
            b"<html>",
            1,
            ["http://PLACE/health/ready responded with HTTP 502; --http takes the address of the status page"],
        ),
        (200, b"<html>", 1, ["http://PLACE/health/ready is not a broker's: its response is not JSON"]),
        (200, b"[]", 1, ["http://PLACE/health/ready is not a broker's"]),
    ],
)
def test_health_over_http(
    code: int, body: bytes, exit_code: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(code, body) as (place, paths):
        assert main(["cluster", "health", "--http", place, "--json"]) == exit_code
    assert paths == ["/health/ready"]
    told = json.loads(capsys.readouterr().out)
    expected = [reason.replace("PLACE", place) for reason in said]
    assert told == {"healthy": not expected, "reasons": expected, "asked": "http"}


def test_health_over_http_of_what_speaks_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connected, _ = listener.accept()
            with connected:
                connected.recv(65536)
                connected.sendall(b"\0\0\0\1?\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert main(["cluster", "health", "--http", f"127.0.0.1:{listener.getsockname()[1]}"]) == 1
        thread.join()
    assert "is not a broker's: it does not speak HTTP" in capsys.readouterr().out
    assert main(["cluster", "health", "--http", "127.0.0.1:99999"]) == 1
    assert "cannot ask http://127.0.0.1:99999/health/ready: " in capsys.readouterr().out


def test_health_over_http_without_anybody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "health", "--http", "http://127.0.0.1:1/"]) == 1
    assert "cannot ask http://127.0.0.1:1/health/ready: " in capsys.readouterr().out
