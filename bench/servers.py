"""The servers that are measured: ours and Apache Kafka, each with its defaults, port and directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from apache_kafka.node import ApacheKafka
from bench.librdkafka import LoadFailed
from bench.results import CAIRN, HOME, KAFKA, say
from bench.usage import Calm, Tree
from broker_process import Broker, fixed_port, wait_until
from cairnmq.client.admin import Alteration
from cairnmq.client.blocking import Client

BOTH = (CAIRN, KAFKA)
RESOURCE_BROKER, SET = 4, 0
START_SECONDS = 300.0
REST_SECONDS = 300.0
# Longer than our checkpoint may wait (cairn.checkpoint.interval.ms): what it allows, as merges of packs, begins before.
REST_QUIET_SECONDS = 6.0

# What Kafka's own start script gives its JVM; the test launcher's flags stand before them, so the last word is here.
KAFKA_JVM = (
    *("-server", "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Xmx1G", "-Xms1G"),
)
KAFKA_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.segment.delete.delay.ms=1000
"""  # the last line: else files of a topic are removed a minute after it, in the middle of a later turn


class Server(Protocol):
    name: str
    port: int
    bootstrap: str
    data: Path

    def prepare(self) -> None:
        """What is done once before the first start, and not counted as start."""

    def launch(self) -> None:
        """Starts the process without waiting for it."""

    def wait_ready(self) -> None: ...

    def tree(self) -> Tree: ...

    def backlog_bytes(self) -> float | None:
        """Bytes that wait to be split; None if the server does no such thing."""

    def hold_back(self) -> None:
        """Stops the work that the server puts off, as a machine under load might: what comes now stays unsplit."""

    def kill(self) -> None:
        """kill -9 of all its processes."""

    def close(self) -> None:
        """Ends it if it runs, and removes its files."""


class CairnServer:
    def __init__(self, directory: Path, settings: Mapping[str, str], flags: Sequence[str] = ()) -> None:
        self.name = CAIRN
        self.directory = directory
        self.port = fixed_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.broker = Broker(directory, port=self.port, settings=settings, flags=flags)
        self.data = self.broker.data

    def prepare(self) -> None:
        pass

    def launch(self) -> None:
        self.broker.launch()

    def wait_ready(self) -> None:
        wait_until(lambda: self.broker.ready_path.exists() or not self.broker.running, START_SECONDS, "cairn serve")
        if not self.broker.running:
            raise RuntimeError(f"cairn serve ended\n{self.broker.log_tail()}")

    def tree(self) -> Tree:
        return Tree(self.broker.pid)

    def backlog_bytes(self) -> float | None:
        ready = json.loads(self.broker.ready_path.read_text())
        with urllib.request.urlopen(f"{ready['http'].rstrip('/')}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(r"^cairn_split_lag_bytes\S* (\S+)", text, re.MULTILINE))

    def hold_back(self) -> None:
        splitter = self.broker.splitter()
        assert splitter is not None, "no splitter process"
        splitter.suspend()

    def kill(self) -> None:
        self.broker.kill_tree()

    def close(self) -> None:
        try:
            self.broker.close()
        except AssertionError as problem:
            say(f"WARNING: {problem}")
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaServer(ApacheKafka):
    def __init__(self, directory: Path, settings: Mapping[str, str], properties: str = KAFKA_PROPERTIES) -> None:
        more = "".join(f"{key}={value}\n" for key, value in settings.items())
        super().__init__(directory, properties=properties + more, jvm=KAFKA_JVM)
        self.name = KAFKA
        self.directory = directory
        self.data = self.logs

    def prepare(self) -> None:
        self.format()

    def wait_ready(self) -> None:
        """After kill -9 it looks at all its partitions first."""
        wait_until(self._is_up, START_SECONDS, "Kafka's port")

    def tree(self) -> Tree:
        return Tree(self.pid)

    def backlog_bytes(self) -> float | None:
        return None

    def hold_back(self) -> None:
        pass

    def kill(self) -> None:
        super().close()

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


Maker = Callable[[Path, Mapping[str, str]], Server]
MAKE: dict[str, Maker] = {CAIRN: CairnServer, KAFKA: KafkaServer}

# Equal durability: neither syncs anything before it answers, or both sync everything, what they keep of groups and
# transactions included.
UNSYNCED, SYNCED = "no fsync", "fsync"
DURABILITY = {
    UNSYNCED: {CAIRN: {"cairn.flush": "none"}},
    SYNCED: {KAFKA: {"log.flush.interval.messages": "1"}},
}


class Servers:
    """The servers of one row: each is started (and warmed up) when its first turn comes, and lives until the end."""

    def __init__(
        self,
        row: str,
        warm_up: Callable[[Server], None] | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        make: Mapping[str, Maker] = MAKE,
    ) -> None:
        """`settings`: by server, beside its defaults."""
        self.row = row
        self.warm_up = warm_up
        self.settings = settings or {}
        self.make = make
        self.running: dict[str, Server] = {}
        self.count = 0

    def get(self, name: str) -> Server:
        if name not in self.running:
            server = self.fresh(name)
            server.prepare()
            server.launch()
            server.wait_ready()
            if self.warm_up is not None:
                say(f"{self.row}: warming up {name}")
                self.warm_up(server)
        return self.running[name]

    def fresh(self, name: str) -> Server:
        """A server of that name on an empty directory, not started; the one before it ends."""
        self.end(name)
        self.count += 1
        directory = HOME / "work" / f"{self.row}-{name.replace(' ', '-').lower()}-{self.count}"
        shutil.rmtree(directory, ignore_errors=True)
        self.running[name] = self.make[name](directory, self.settings.get(name, {}))
        return self.running[name]

    def end(self, name: str) -> None:
        server = self.running.pop(name, None)
        if server is not None:
            server.close()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.end(name)


def turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Who goes first changes from round to round."""
    return names if number % 2 else names[::-1]


def rest(server: Server, seconds: float = REST_SECONDS) -> Calm:
    """Waits until all that the server puts off is done: nothing is left to split, and it is quiet for a while. What is
    given is how it was when that while began."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        calm = server.tree().settle(left, REST_QUIET_SECONDS)
        # Asked for last, and once: the answer costs the server something too.
        if calm is not None and not server.backlog_bytes():
            return calm
    raise LoadFailed(f"{server.name} still has work to do after {seconds:g} s")


def set_splitting(server: Server, enabled: bool) -> None:
    """Ours can be told to pause its splitter and to go on."""
    with Client.connect(server.bootstrap) as client:
        change = Alteration("cairn.split.enable", SET, str(enabled).lower())
        client.incremental_alter_configs(RESOURCE_BROKER, "1", [change])


def evict(server: Server) -> None:
    """Writes out the server's files and takes them out of the page cache."""
    for directory, _, names in os.walk(server.data):  # which goes on when a topic is deleted meanwhile
        for name in names:
            try:
                descriptor = os.open(Path(directory, name), os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
