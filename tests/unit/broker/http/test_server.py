"""The HTTP server: pages, health, metrics; and that it bears bad requests."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from cairnmq.broker.http import page_files
from cairnmq.broker.http import server as http
from cairnmq.broker.http.server import HttpServer
from cairnmq.broker.http.status import Status
from cairnmq.broker.options import Address
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.wire.apis import METADATA
from cairnmq.wire.messages import MetadataRequest
from unit.broker.rig import LISTENER, Rig, batch, open_rig, scenario, until

PROMISED = [
    "cairn_request_seconds",
    "cairn_bytes_in_total",
    "cairn_bytes_out_total",
    "cairn_journal_end_bytes",
    "cairn_journal_size_bytes",
    "cairn_split_lag_bytes",
    "cairn_replay_bytes",
    "cairn_checkpoint_age_seconds",
    "cairn_flush_seconds",
    "cairn_recovery_seconds",
    "cairn_connections",
    "cairn_group_lag",
    "kafka_consumergroup_lag",
    "kafka_topic_partition_current_offset",
]


class Web:
    def __init__(self, status: Status, port: int) -> None:
        self.status = status
        self.port = port

    async def raw(self, data: bytes) -> bytes:
        """Everything the server sends until it hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        answer = await reader.read()
        writer.close()
        return answer

    async def get(self, path: str, method: str = "GET", host: str = "x") -> tuple[int, dict[str, str], bytes]:
        answer = await self.raw(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        assert method == "HEAD" or int(headers["content-length"]) == len(body)
        return int(lines[0].split()[1]), headers, body


@asynccontextmanager
async def open_web(rig: Rig | None = None) -> AsyncIterator[Web]:
    status = Status(time.monotonic)
    if rig is not None:
        status.serve(rig.ctx)
    server = HttpServer(status)
    try:
        yield Web(status, await server.open("127.0.0.1", 0))
    finally:
        await server.close()


async def used(rig: Rig) -> None:
    """A topic with records, a group that is behind, a request that was measured."""
    topic = await rig.create("orders", partitions=2)
    await rig.produce("orders", batch(*[b"x"] * 5), partition=1)
    await rig.facts.commit([put(OffsetKey('g"1', topic.topic_id, 1), Committed(2))])
    await rig.ask(METADATA, 9, MetadataRequest(topics=None))
    rig.ctx.metrics.request(METADATA).observe(0.001)


@scenario
async def test_health_while_recovery_runs() -> None:
    async with open_web() as web:
        assert (await web.get("/health/live"))[0] == 200
        code, _, body = await web.get("/health/ready")
        assert code == 503
        assert json.loads(body) == {"ready": False, "reasons": ["recovery in progress"]}
        assert json.loads((await web.get("/api/v1/status"))[2])["broker"]["ready"] is False
        assert b"cairn_ready 0" in (await web.get("/metrics"))[2]


@scenario
async def test_health_when_ready_and_when_a_journal_has_stopped(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        code, headers, body = await web.get("/health/ready")
        assert (code, json.loads(body)) == (200, {"ready": True, "reasons": []})
        assert headers["content-type"] == "application/json"
        rig.ctx.store.engine.paths[0].stopped = "the disk said no"
        code, _, body = await web.get("/health/ready")
        assert code == 503 and "the disk said no" in json.loads(body)["reasons"][0]
        assert (await web.get("/health/live"))[0] == 200
        rig.ctx.store.engine.paths[0].stopped = None


@scenario
async def test_every_promised_metric_with_help_and_type(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await used(rig)
        _, headers, body = await web.get("/metrics")
        text = body.decode()
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        for name in PROMISED:
            assert text.count(f"# TYPE {name} ") == 1 and text.count(f"# HELP {name} ") == 1
            assert re.search(rf"^{name}(_bucket|_count|_sum)?(\{{.*\}})? \S+$", text, re.MULTILINE), name
        assert 'cairn_group_lag{group="g\\"1",topic="orders",partition="1"} 3' in text
        assert 'kafka_consumergroup_lag{consumergroup="g\\"1",topic="orders",partition="1"} 3' in text
        assert 'kafka_topic_partition_current_offset{topic="orders",partition="1"} 5' in text
        assert 'cairn_request_seconds_count{api="Metadata"} 1' in text


@scenario
async def test_metrics_are_well_formed(tmp_path: Path) -> None:
    line = re.compile(
        r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)+\})? (-?[0-9.]+(e-?[0-9]+)?|[+-]Inf|NaN)'
    )
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await used(rig)
        typed: set[str] = set()
        for row in (await web.get("/metrics"))[2].decode().splitlines():
            if row.startswith("# TYPE "):
                name = row.split()[2]
                assert name not in typed
                typed.add(name)
            elif not row.startswith("#"):
                assert line.fullmatch(row), row
                assert re.sub("_(bucket|sum|count)$", "", re.split("[{ ]", row)[0]) in typed | {
                    re.split("[{ ]", row)[0]
                }


@scenario
async def test_the_api_behind_the_page(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await used(rig)
        status = json.loads((await web.get("/api/v1/status"))[2])
        assert status["broker"]["bootstrap"] == "127.0.0.1:9092"
        elsewhere = Status(time.monotonic)
        node = replace(rig.ctx.node, listeners=(replace(LISTENER, advertised=Address("::1", 9092)),))
        elsewhere.serve(replace(rig.ctx, node=node))
        assert elsewhere.broker()["bootstrap"] == "[::1]:9092"
        (topic,) = status["topics"]
        assert (topic["name"], topic["partitions"], topic["messages"]) == ("orders", 2, 5)
        (group,) = status["groups"]
        assert (group["group"], group["lag"], group["offsets"][0]["committed"]) == ('g"1', 3, 2)
        assert status["journals"][0]["end"] > 0
        detail = json.loads((await web.get("/api/v1/topics/orders"))[2])
        assert [row["visible"] for row in detail["partitions"]] == [0, 5]
        assert json.loads((await web.get("/api/v1/topics"))[2]) == status["topics"]
        assert json.loads((await web.get("/api/v1/groups"))[2]) == status["groups"]
        assert (await web.get("/api/v1/topics/none"))[0] == 404
        assert (await web.get("/api/v2"))[0] == 404


@scenario
async def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing_but_its_files() -> None:
    async with open_web() as web:
        code, headers, body = await web.get("/")
        assert code == 200 and headers["content-type"].startswith("text/html")
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert not re.search(rb"<script(?! type=\"module\" src=)|<style| style=| on\w+=", body)
        wanted = {name.decode() for name in re.findall(rb'(?:src|href)="([\w.]+)"', body)}
        assert wanted == {"app.css", "app.js", "icon.svg"}
        for name in page_files.KINDS:
            code, headers, body = await web.get(f"/{name}")
            assert code == 200 and headers["content-type"] == page_files.KINDS[name]
            imported = {found.decode() for found in re.findall(rb'from "\./([\w.]+)"', body)}
            assert imported <= page_files.KINDS.keys()
            assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", body)
            assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", body)


def test_every_file_of_the_page_is_served() -> None:
    directory = Path(page_files.__file__).parent / "page"
    files = {file.name for file in directory.iterdir() if file.is_file() and file.suffix != ".py"}
    assert files == page_files.KINDS.keys()


@pytest.mark.parametrize("path", ["/__init__.py", "/page_files.py", "/..%2fhttp.py", "/app.js/x", "/%2e%2e/http.py"])
@scenario
async def test_other_files_are_not_served(path: str) -> None:
    async with open_web() as web:
        assert (await web.get(path))[0] == 404


@scenario
async def test_the_settings_and_the_groups_of_a_topic(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await used(rig)
        await rig.create("other", retention_ms="1234")
        settings = {row["name"]: row for row in json.loads((await web.get("/api/v1/topics/other/settings"))[2])}
        assert (settings["retention.ms"]["value"], settings["retention.ms"]["own"]) == ("1234", True)
        assert settings["cleanup.policy"]["own"] is False and settings["cleanup.policy"]["doc"]
        assert json.loads((await web.get("/api/v1/topics/other/groups"))[2]) == []
        (group,) = json.loads((await web.get("/api/v1/topics/orders/groups"))[2])
        assert group == {"group": 'g"1', "state": "Empty", "members": 0, "lag": 3}
        for page in ("settings", "groups"):
            assert (await web.get(f"/api/v1/topics/none/{page}"))[0] == 404


@scenario
async def test_the_rate_of_traffic_is_there_at_the_first_question(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        now = 0.0
        status = Status(lambda: now)
        status.serve(rig.ctx)
        status.traffic.look()
        rig.ctx.metrics.bytes_in += 5000
        now = 2.5
        told = status.broker()
        assert (told["bytes_in_per_second"], told["bytes_out_per_second"]) == (2000.0, 0.0)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@scenario
async def test_read_only(method: str) -> None:
    async with open_web() as web:
        assert (await web.get("/api/v1/status", method))[0] == 405


@scenario
async def test_head_sends_no_body() -> None:
    async with open_web() as web:
        code, headers, body = await web.get("/", "HEAD")
        assert (code, body) == (200, b"") and int(headers["content-length"]) > 1000


@scenario
async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with open_web() as web:
        first = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /health/live HTTP/1.0\r\n\r\n"
        answer = await web.raw(first + first + last)
        assert answer.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", b"GET /\r\n\r\n", b"GET / SPDY/9\r\n\r\n"])
@scenario
async def test_what_is_not_http(data: bytes) -> None:
    async with open_web() as web:
        assert (await web.raw(data)).startswith(b"HTTP/1.1 400")
        assert (await web.get("/health/live"))[0] == 200


@scenario
async def test_an_endless_head_is_cut_off() -> None:
    async with open_web() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert (await web.get("/health/live"))[0] == 200


@scenario
async def test_no_second_request_behind_a_body() -> None:
    """The body is not read, so what follows cannot be told from it."""
    async with open_web() as web:
        smuggled = b"GET /health/live HTTP/1.1\r\n\r\n"
        head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
        assert (await web.raw(head + smuggled)).count(b"HTTP/1.1") == 1


@scenario
async def test_a_path_that_is_none() -> None:
    """Found by hostile clients: it ended in an exception that nobody handled."""
    async with open_web() as web:
        assert (await web.raw(b"GET //[ HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@scenario
async def test_connections_are_bounded_and_slow_readers_of_large_pages_do_not_block_health() -> None:
    async with open_web() as web:
        many = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(300)]

        def closed() -> int:
            return sum(reader.at_eof() or reader.exception() is not None for reader, _ in many)

        await until(lambda: closed() >= 40)
        await asyncio.sleep(0.05)
        assert closed() <= 60
        for _, writer in many:
            writer.close()
        await asyncio.sleep(0.05)
        slow = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(8)]
        for _, writer in slow:
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" * 50)
        assert (await web.get("/health/live"))[0] == 200
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 20, id="drained"),  # more than a connection buffers
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="idle"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="closed"),
    ],
)
@scenario
async def test_who_never_reads_holds_nothing_for_ever(monkeypatch: pytest.MonkeyPatch, last: bytes) -> None:
    monkeypatch.setattr(http, "_IDLE_SECONDS", 0.2)
    server = HttpServer(Status(time.monotonic))
    port = await server.open("127.0.0.1", 0)
    assert server._server is not None
    server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the rest waits in the process
    clients = [socket.socket() for _ in range(5)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4 + last)
    seen: set[object] = set()

    def all_came() -> bool:
        seen.update(server._conversations)
        return len(seen) == len(clients)

    def held() -> list[Any]:
        """What this process has open on the server's side. Files of other tests come and go beside it."""
        return [one for one in psutil.Process().net_connections("tcp") if one.laddr.port == port and one.raddr]

    await until(all_came)
    await until(lambda: not held())
    assert not server._conversations
    await server.close()
    for client in clients:
        client.close()


@scenario
async def test_who_has_said_its_last_gets_its_whole_answer() -> None:
    async with open_web() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 500)
        writer.write_eof()
        assert (await reader.read()).count(b"</html>") == 500
        writer.close()


class BrokenStatus(Status):
    turn = 0

    def storage(self) -> dict[str, object]:
        raise RuntimeError("planted")

    def broker(self) -> dict[str, object]:
        raise RuntimeError(f"another {self.turn}")


@scenario
async def test_a_page_that_fails_is_answered_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    status = BrokenStatus(time.monotonic)
    server = HttpServer(status)
    web = Web(status, await server.open("127.0.0.1", 0))
    pages = ["/api/v1/storage", "/api/v1/broker"] * 3
    assert [(await web.get(page))[0] for page in pages] == [500] * 6
    assert (await web.get("/health/live"))[0] == 200
    assert [record.message for record in caplog.records if "failed" in record.message] == [
        "status page: request /api/v1/storage failed: RuntimeError('planted')",
        "status page: request /api/v1/broker failed: RuntimeError('another 0')",
    ]
    for status.turn in range(2 * http._FAILURES_MAX):
        await web.get("/api/v1/broker")
    assert len(server._failures) <= http._FAILURES_MAX
    await server.close()


class SlowStatus(Status):
    """Metrics that come when the test says so."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def metrics(self) -> str:
        self.asked.set()
        await self.go_on.wait()
        return "late"


@scenario
async def test_a_client_that_is_gone_before_its_answer_harms_nobody() -> None:
    """Found by hostile clients: the answer was written to a closed connection, and nobody handled what that raises."""
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    status = SlowStatus()
    server = HttpServer(status)
    port = await server.open("127.0.0.1", 0)
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    await status.asked.wait()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
    client.close()
    await asyncio.sleep(0.05)
    status.go_on.set()
    await asyncio.sleep(0.05)
    await server.close()
    assert not unhandled


class LongStatus(Status):
    """More than a connection takes that nobody reads from."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)

    async def metrics(self) -> str:
        return "x" * (16 << 20)


def readers_in_memory() -> int:
    return sum(isinstance(one, asyncio.StreamReader) for one in gc.get_objects())


@scenario
async def test_a_client_that_resets_its_connection_leaves_nothing_in_memory() -> None:
    """Found by hostile clients: the response stayed until the garbage collector ran, which may be never."""
    gc.collect()
    before = readers_in_memory()
    server = HttpServer(LongStatus())
    port = await server.open("127.0.0.1", 0)
    gc.disable()
    try:
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.to_thread(client.recv, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        client.close()
        await until(lambda: not server._conversations)
        await until(lambda: readers_in_memory() <= before)
    finally:
        gc.enable()
        await server.close()


class CrowdedStatus(Status):
    """Counts how many pages about one topic are made at once."""

    now = most = 0

    async def topic(self, name: str) -> dict[str, object] | None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        return {}


@scenario
async def test_pages_about_one_topic_are_made_one_after_another() -> None:
    """It may have 100,000 partitions."""
    status = CrowdedStatus(time.monotonic)
    server = HttpServer(status)
    web = Web(status, await server.open("127.0.0.1", 0))
    answers = await asyncio.gather(*(web.get("/api/v1/topics/wide") for _ in range(6)))
    assert [code for code, _, _ in answers] == [200] * 6 and status.most == 1
    await server.close()


@scenario
async def test_a_stop_ends_those_who_still_wait() -> None:
    """Found by floods of the status port: each of them was an exception in the log when the process ended."""
    before = asyncio.all_tasks()
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    status = SlowStatus()
    server = HttpServer(status)
    port = await server.open("127.0.0.1", 0)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    for number, (_, writer) in enumerate(clients):
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" if number else b"GET")
    await status.asked.wait()
    await asyncio.sleep(0.02)
    await server.close()
    assert [await reader.read() for reader, _ in clients] == [b""] * 8
    for _, writer in clients:
        writer.close()
    await asyncio.sleep(0)
    assert not unhandled
    assert asyncio.all_tasks() == before
