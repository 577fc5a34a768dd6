"""The card of a cluster on the status page: shown in a cluster alone, and what it says of brokers and replicas."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from broker_process import Broker
from browser.chromium import Chromium, Page
from cairnmq.broker.http import page_files
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.client.cluster_answers import told_of
from cairnmq.client.cluster_report import merge
from scripted_cluster import ScriptedCluster

UNKNOWN = dict.fromkeys(("start", "visible", "end", "bytes"))
ELSEWHERE = {"partition": 7, "queue_id": 70, **UNKNOWN, "leader": 2, "replicas": [2, 3]}
"""A partition without a replica on this broker."""


@pytest.fixture
def scripted() -> ScriptedCluster:
    return ScriptedCluster()


@pytest.fixture
def page(shared_broker: Broker, scripted: ScriptedCluster, browser: Chromium) -> Iterator[Callable[[], Page]]:
    """The page of a real broker, to which a cluster is added."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/") or page_files.INDEX
            if name in page_files.KINDS:
                self.answer(page_files.KINDS[name], page_files.read(name))
                return
            with urllib.request.urlopen(f"{shared_broker.http}{self.path}") as response:
                told = msgspec.json.decode(response.read())
            if isinstance(told, dict) and isinstance(told.get("partitions"), list):
                told["partitions"] = [{**row, "leader": 1, "replicas": [1, 2]} for row in told["partitions"]]
                told["partitions"].append(ELSEWHERE)
            report = merge({1: told_of(scripted.told_by(1))})
            self.answer("application/json", msgspec.json.encode({**told, "cluster": report}))

        def answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    opened: list[Page] = []

    def open_page() -> Page:
        found = browser.open(f"http://127.0.0.1:{server.server_port}/#/", width=1280)
        found.wait("document.getElementById('state')?.textContent === 'ready'")
        opened.append(found)
        return found

    yield open_page
    assert [each.complaints() for each in opened] == [[]] * len(opened)
    server.shutdown()
    server.server_close()
    thread.join()


def rows(table: str) -> str:
    """Script: a table's cells."""
    return f"[...document.querySelectorAll('#{table} tbody tr')].map(tr => [...tr.cells].map(td => td.innerText))"


def test_one_node_shows_no_cluster(shared_broker: Broker, browser: Chromium) -> None:
    page = browser.open(f"{shared_broker.http}/#/", width=1280)
    page.wait("document.getElementById('state')?.textContent === 'ready'")
    assert page.ask("document.getElementById('cluster-card').hidden")


def test_brokers_journals_and_what_is_wrong(page: Callable[[], Page], scripted: ScriptedCluster) -> None:
    scripted.down, scripted.isr = {3}, {1: [1, 2], 2: [1, 2], 3: [3]}
    scripted.behind = {(1, 2): 2048}
    seen = page()
    seen.wait(f"{rows('brokers')}.length === 3")
    assert [row[:2] + row[3:6] for row in seen.ask(rows("brokers"))] == [
        ["1", "live, controller", "1", "3", "2"],
        ["2", "live", "1", "3", "2"],
        ["3", "down", "0", "3", "0"],
    ]
    assert [row[:2] + row[3:] for row in seen.ask(rows("cluster-journals"))] == [
        ["1", "broker 1", "2", "1, 2 (2.0 KiB behind), 3 (down)"],
        ["2", "broker 2", "2", "2, 3 (down), 1"],
        ["3", "none", "0", "3 (down), 1 (not in sync), 2 (not in sync)"],
    ]
    said = seen.ask("[...document.querySelectorAll('#cluster-problems li')].map(li => li.innerText)")
    assert said[0].startswith("journal 3: no leader") and "broker 3 is down" in said
    scripted.down, scripted.isr = set(), {}
    seen.wait("document.querySelectorAll('#cluster-problems li').length === 0")
    assert not seen.ask("document.getElementById('cluster-card').classList.contains('bad-card')")


def test_partitions_that_other_brokers_have(shared_broker: Broker, page: Callable[[], Page]) -> None:
    with Client.connect(shared_broker.bootstrap) as client:
        client.create_topics([NewTopic("spread", 1, 1)])
    seen = page()
    seen.ask("location.hash = '#/topics/spread'")
    seen.wait("document.querySelectorAll('#partitions tbody tr').length === 2")
    assert seen.ask(rows("partitions")) == [
        ["0", "0", "0", "0", "0 B", "1", "1, 2"],
        ["7", "–", "–", "–", "–", "2", "2, 3"],
    ]
