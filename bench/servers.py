"""The servers that are measured: ours and Apache Kafka, each with its defaults, port and directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from apache_kafka.node import ApacheKafka
from bench.results import CAIRN, HOME, KAFKA, say
from bench.usage import Tree
from broker_process import Broker, fixed_port, wait_until

BOTH = (CAIRN, KAFKA)
START_SECONDS = 300.0

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
"""


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

    def kill(self) -> None:
        """kill -9 of all its processes."""

    def close(self) -> None:
        """Ends it if it runs, and removes its files."""


class CairnServer:
    def __init__(self, directory: Path) -> None:
        self.name = CAIRN
        self.directory = directory
        self.port = fixed_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.broker = Broker(directory, port=self.port)
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

    def kill(self) -> None:
        self.broker.kill_tree()

    def close(self) -> None:
        try:
            self.broker.close()
        except AssertionError as problem:
            say(f"WARNING: {problem}")
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaServer(ApacheKafka):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, properties=KAFKA_PROPERTIES, jvm=KAFKA_JVM)
        self.name = KAFKA
        self.directory = directory
        self.data = self.logs

    def prepare(self) -> None:
        self.format()

    def tree(self) -> Tree:
        return Tree(self.pid)

    def kill(self) -> None:
        super().close()

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


MAKE: dict[str, Callable[[Path], Server]] = {CAIRN: CairnServer, KAFKA: KafkaServer}


class Servers:
    """The servers of one row: each is started (and warmed up) when its first turn comes, and lives until the end."""

    def __init__(self, row: str, warm_up: Callable[[Server], None] | None = None) -> None:
        self.row = row
        self.warm_up = warm_up
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
        self.running[name] = MAKE[name](directory)
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
