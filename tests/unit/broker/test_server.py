"""Starting and stopping the process; what settings and flags come to."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.options import Address, ServeOptions
from cairnmq.broker.server import Unservable, _connections_max, _limit_buffers, _replace_lost_metadata, settle
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Lost
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter


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
    assert process.wait(60) == 0
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
import errno
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


def test_settings_fill_what_no_flag_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:7000\nnode.id=4\nlog.dirs=/elsewhere\nnum.partitions=3\n")
    options = ServeOptions(config=str(file), node_id=9, given=frozenset({"config", "node_id"}))
    settled, config = settle(options, {"CAIRN_NUM_PARTITIONS": "5"})
    assert (settled.listen, settled.node_id, settled.data) == (Address("127.0.0.1", 7000), 9, "/elsewhere")
    assert config.num_partitions == 5


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (ServeOptions(settings=(("num.partition", "1"),)), {}, "num.partitions"),
        (ServeOptions(settings=(("num.partitions", "no"),)), {}, "num.partitions"),
        (ServeOptions(), {"CAIRN_NONSENSE": "1"}, "CAIRN_NONSENSE"),
        (ServeOptions(listen=Address("0.0.0.0", 9092), given=frozenset({"listen"})), {}, "--insecure"),
        (ServeOptions(settings=(("listeners", "PLAINTEXT://10.1.2.3:9092"),)), {}, "--insecure"),
        (ServeOptions(metadata="zookeeper://z:2181", given=frozenset({"metadata"})), {}, "sqlite"),
    ],
)
def test_what_cannot_be_served(options: ServeOptions, environment: dict[str, str], words: str) -> None:
    with pytest.raises(Unservable, match=words):
        settle(options, environment)


def test_insecure_is_a_choice() -> None:
    options = ServeOptions(listen=Address("0.0.0.0", 9092), insecure=True, given=frozenset({"listen", "insecure"}))
    assert settle(options, {})[0].listen.host == "0.0.0.0"


def test_connections_leave_files_for_journals_and_logs() -> None:
    config = BrokerConfig()
    assert [_connections_max(config, files) for files in (256, 1024, 20_000, 1_000_000)] == [128, 512, 15_000, 750_000]
    assert _connections_max(BrokerConfig(max_connections=7), 1024) == 7


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


def leave_wal(path: Path) -> None:
    """What a killed broker leaves beside its metadata, which are gone."""
    wal = path.with_name(path.name + "-wal")
    with closing(SqliteStore(str(path))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        catalog.next_epoch()
        left = wal.read_bytes()
    path.unlink()
    wal.write_bytes(left)


@pytest.mark.parametrize("which", range(1, 7))
def test_a_stopped_start_with_accept_loss_keeps_what_no_topic_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The next start found the new metadata, saw no loss, and deleted what should have been put aside."""
    data, journals = str(tmp_path), str(tmp_path / "journal")
    spec = QueueSpec(7, "t", 0, bytes(16), LogConfig(model="dedicated"))
    disks = RealDisk(journals), RealDisk(data)
    engine = Engine.open(*disks, [spec], begin=lambda _: 3, seed=5, config=EngineConfig(), now_ms=0)
    path = engine.paths[0]
    path.stage(engine.queues[7], memoryview(bytearray(build_batch([Record(0, 0, None, b"value", ())]))), -1, 0)
    write = path.take()
    assert write is not None
    path.write(write)
    path.written(write)
    path.synced_to(path.sync())
    splitter = Splitter(*disks, load_checkpoint(disks[1]), lambda ids: [spec], journals=[0])
    splitter.split(0, engine.splittable(0), 0)
    splitter.checkpoint(0)
    splitter.close()
    leave_wal(tmp_path / "meta.db")
    options, rename, calls = ServeOptions(data=data, accept_loss=True), RealDisk.rename, itertools.count(1)
    found = FoundMetadata(data, "meta.db")

    def fail(disk: RealDisk, old: str, new: str) -> None:
        if next(calls) == which:
            raise OSError(errno.ENOSPC, "no room")
        rename(disk, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "rename", fail)
        with pytest.raises(OSError, match="no room"):
            _replace_lost_metadata(options, (journals, data), found)
    assert not (tmp_path / "meta.db").exists()
    if which != 4:  # there all is put aside and nothing new is made: nothing is left that could be lost
        with pytest.raises(Lost):
            _replace_lost_metadata(ServeOptions(data=data), (journals, data), found)
    _replace_lost_metadata(options, (journals, data), found)
    assert list(tmp_path.glob("lost/*/queues/t-0/*.log")), "records are kept aside"
    assert list(tmp_path.glob("journal/lost/*/0/*")), "and journals"
    assert not list(tmp_path.glob("queues/*"))
    assert list(tmp_path.glob("lost/*/meta.db-wal")), "and changes of the lost metadata, not replayed into the new"
    with closing(SqliteStore(str(tmp_path / "meta.db"))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        assert catalog.image.next_queue_id > 7 and catalog.next_epoch() > 4
    assert not (tmp_path / "meta.db.new").exists()
