"""A real Apache Kafka as tests need it: one node, formatted, started as a JVM on free ports, stopped by its pid."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from broker_process import fixed_port, wait_until
from interop.clients.process import PROGRAMS_DIR
from programs import require_program

SECONDS = 60
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=1
num.io.threads=2
auto.create.topics.enable=false
"""


def kafka_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A class of Kafka's jars with arguments, as its shell scripts run it."""
    launcher = require_program(str(PROGRAMS_DIR / "kafka_tool"))
    return subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)


class ApacheKafka:
    """`logs` is its log directory, whole once it has stopped."""

    def __init__(self, directory: Path, properties: str = PROPERTIES, jvm: Sequence[str] = ("-Xmx384m",)) -> None:
        self.launcher = require_program(str(PROGRAMS_DIR / "kafka_tool"))
        self.logs = directory / "logs"
        self.port = fixed_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._properties = directory / "server.properties"
        self._output = directory / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._jvm = jvm
        self._properties.write_text(properties.format(port=self.port, controller=fixed_port(), logs=self.logs))

    def start(self) -> None:
        self.format()
        self.launch()
        self.wait_ready()

    def format(self) -> None:
        formatted = kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr

    def launch(self) -> None:
        """Starts the process without waiting for its port."""
        with self._output.open("wb") as output:
            line = [self.launcher, *self._jvm, "kafka.Kafka", str(self._properties)]
            # A session of its own, as our broker gets: Linux shares the CPU between sessions.
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def wait_ready(self) -> None:
        wait_until(self._is_up, SECONDS, "Kafka's port")

    def _is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._output.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """SIGTERM: everything is flushed, and a note of the clean stop left."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(SECONDS)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(SECONDS)
