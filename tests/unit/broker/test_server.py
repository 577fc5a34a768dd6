"""Starting and stopping the process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairnmq.broker.server import _limit_buffers
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.broker import BrokerConfig


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str, before: str = "") -> subprocess.Popen[str]:
        program = before + "import sys; from cairnmq.cli.main import main; sys.exit(main())"
        place = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-c", program, "serve", *place, *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    assert process.stdout is not None
    words = dict(word.split("=", 1) for word in process.stdout.readline().split()[2:])
    return words["bootstrap"], words["http"], int(words["pid"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_ready_file_and_a_clean_end(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: int
) -> None:
    file = tmp_path / "ready.json"
    process = serve("--http", "127.0.0.1:0", "--ready-file", str(file))
    bootstrap, http, pid = ready(process)
    assert json.loads(file.read_text()) == {"bootstrap": bootstrap, "http": http, "pid": pid} and pid == process.pid
    host, port = bootstrap.split(":")
    socket.create_connection((host, int(port)), timeout=60).close()
    with urllib.request.urlopen(f"{http}/health/ready", timeout=60) as answer:
        assert json.load(answer)["ready"] is True
    os.kill(process.pid, number)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0 and "recovered 0 partitions in" in log and log.endswith(": broker stopped\n")
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []


def test_a_signal_ends_recovery(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """The signal comes when the scan begins; with the first entry it ends."""
    strike = """
import os, signal, time
from cairnmq.storage.files import fault_point
from cairnmq.storage.recovery import replay as recovery
recovery.PROGRESS_ENTRIES = 1
fault_point.arm("recovery-scan", lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(1)))
"""
    first = serve("--no-http")
    bootstrap, _, _ = ready(first)
    with Client.connect(bootstrap) as client:
        client.topic("t", create=True)
        client.produce("t", 0, build_batch([Record(0, 0, None, b"v")]))
    first.kill()
    first.wait()
    stopped = serve("--no-http", before=strike)
    said, error = stopped.communicate(timeout=60)
    assert (stopped.returncode, said) == (0, "") and "stopped during recovery" in error and "Traceback" not in error
    bootstrap, _, _ = ready(serve("--no-http"))
    with Client.connect(bootstrap) as client:
        assert client.produce("t", 0, build_batch([Record(0, 0, None, b"w")])).base_offset == 1  # type: ignore[union-attr]


def test_a_full_disk_keeps_nobody_from_starting(serve: Callable[..., subprocess.Popen[str]]) -> None:
    """Not even if a deleted topic has left something to clean up."""
    full = """
from cairnmq.groups.offsets import OffsetKey, Offsets, drop
from cairnmq.storage.live.write_path import WritePath
def refuse(self, write):
    raise OSError(errno.ENOSPC, "No space left on device")
WritePath.write = refuse
Offsets.forget_unknown = lambda self, known: [drop(OffsetKey("g", bytes(16), 0))]
"""
    process = serve("--no-http", before=full)
    _, _, pid = ready(process)
    assert pid == process.pid


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_python_without_asserts_is_refused(tmp_path: Path, way: str) -> None:
    """They are checks of invariants: without them a defect would reach the data."""
    flag, more = (["-O"], {}) if way == "flag" else ([], {"PYTHONOPTIMIZE": "1"})
    command = [sys.executable, *flag, "-m", "cairnmq", "serve", "--data", str(tmp_path / "data"), "--no-http"]
    ended = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2 and "removes the checks" in ended.stderr and "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists(), "nothing was touched"


def test_a_second_broker_on_the_same_data_is_refused(serve: Callable[..., subprocess.Popen[str]]) -> None:
    first = serve("--no-http")
    bootstrap, http, _ = ready(first)
    assert http == "-"
    second = serve("--no-http")
    _, error = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "in use by process" in error and str(first.pid) in error and "Traceback" not in error
    assert first.poll() is None


def test_a_used_port_is_told_at_once(serve: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = serve("--no-http", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1 and "cannot listen on" in error and "Traceback" not in error


def test_the_buffers_of_connections_are_those_of_their_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        as_system_likes = bound.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        _limit_buffers(bound, BrokerConfig())
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == as_system_likes
        _limit_buffers(bound, BrokerConfig(socket_send_buffer_bytes=20_000, socket_receive_buffer_bytes=30_000))
        with socket.create_connection(bound.getsockname()):
            accepted, _ = bound.accept()
            with accepted:
                sizes = [
                    accepted.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
                ]
    assert 20_000 <= sizes[0] <= 40_000 and 30_000 <= sizes[1] <= 60_000  # Linux doubles what it is told
