"""Start and end of real processes: the lock, SIGTERM, ready file, orphans, and what a clean stop keeps."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from broker_process import CAIRN, Broker, fixed_port, wait_until
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient

MakeBroker = Callable[..., Broker]
SECONDS = 60


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    """A `cairn serve` that is meant to refuse."""
    return subprocess.run([CAIRN, "serve", *flags], capture_output=True, text=True, timeout=SECONDS, check=False)


def test_says_it_is_ready(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    said = broker.directory / "stdout.log"
    wait_until(lambda: said.read_text().endswith("\n"), SECONDS, "a line")  # the ready file comes before it
    assert said.read_text() == f"cairn ready bootstrap={broker.bootstrap} http={broker.http} pid={broker.pid}\n"
    assert broker.process is not None and broker.pid == broker.process.pid


def test_data_directory_has_one_owner(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    second = serve("--data", str(broker.data), "--listen", "127.0.0.1:0", "--no-http")
    assert second.returncode != 0
    assert str(broker.data) in second.stderr
    assert "Traceback" not in second.stderr
    client = LibrdkafkaClient(broker.bootstrap)
    assert client.produce("still-there", [Sent(b"x")]) == [0]


def test_journals_have_one_owner(make_broker: MakeBroker, tmp_path: Path) -> None:
    """A copy of the data directory has the same cluster id; two that write the same journals lose records."""
    journals = tmp_path / "journals"
    broker = make_broker(journal_dir=journals).start()
    client = LibrdkafkaClient(broker.bootstrap)
    client.produce("kept", [Sent(b"1")])
    copy = shutil.copytree(broker.data, tmp_path / "copy")
    place = ["--data", str(copy), "--journal-dir", str(journals), "--listen", "127.0.0.1:0", "--no-http"]
    second = serve(*place, "--accept-loss")
    assert second.returncode == 1
    assert f"{journals} is in use by process {broker.pid}" in second.stderr
    # A splitter that outlives its broker keeps both.
    splitter = broker.splitter()
    assert splitter is not None
    assert {file.path for file in splitter.open_files()} >= {str(broker.data / "lock"), str(journals / "lock")}
    assert client.produce("kept", [Sent(b"2")]) == [1]
    broker.kill_tree()
    broker.start()
    assert [record.value for record in LibrdkafkaClient(broker.bootstrap).read("kept")] == [b"1", b"2"]


@pytest.mark.parametrize("port", ["--listen", "--http"])
def test_a_start_that_fails_leaves_the_ready_file_of_who_has_the_port(
    make_broker: MakeBroker, tmp_path: Path, port: str
) -> None:
    broker = make_broker().start()
    said = broker.ready_path.read_text()
    assert broker.http is not None
    ports = {"--listen": "127.0.0.1:0", "--http": "127.0.0.1:0"}
    ports[port] = {"--listen": broker.bootstrap, "--http": broker.http.removeprefix("http://")}[port]
    flags = [word for pair in ports.items() for word in pair]
    second = serve("--data", str(tmp_path / "other"), "--ready-file", str(broker.ready_path), *flags)
    assert second.returncode == 1 and "Traceback" not in second.stderr
    assert broker.ready_path.read_text() == said


def test_listens_to_others_only_when_told(tmp_path: Path) -> None:
    refused = serve("--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0", "--no-http")
    assert refused.returncode != 0
    assert "--insecure" in refused.stderr


def test_sigterm_keeps_everything_and_splits_it(make_broker: MakeBroker) -> None:
    broker = make_broker(port=fixed_port()).start()
    client = LibrdkafkaClient(broker.bootstrap)
    client.produce("kept", [Sent(b"%d" % n) for n in range(500)])
    client.commit("group", "kept", 0, 123)
    before = client.read("kept")
    assert broker.stop() == 0
    stored = sum(path.stat().st_size for path in (broker.data / "queues" / "kept-0").glob("*.log"))
    assert stored > 500
    broker.start()
    client = LibrdkafkaClient(broker.bootstrap)
    assert client.read("kept") == before
    assert client.committed("group", "kept", 0) == 123
    assert client.produce("kept", [Sent(b"next")]) == [500]


def test_nothing_outlives_a_killed_broker(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    children = broker.tree()[1:]
    broker.kill_broker()
    wait_until(lambda: not any(alive(child) for child in children), SECONDS, "the end of the broker's children")


def test_the_first_splitter_may_open_as_many_files_as_its_broker(make_broker: MakeBroker) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, hard))
    try:
        broker = make_broker().start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [process.rlimit(psutil.RLIMIT_NOFILE) for process in broker.tree()] == [(hard, hard)] * 2


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
