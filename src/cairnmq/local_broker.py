"""`cairnmq.Broker`: a broker of your own for tests and experiments, in a process that ends with yours.

with cairnmq.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})

`LocalCluster` is several of them that form a cluster.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cairnmq.errors import Fault

if TYPE_CHECKING:
    from typing import Self

START_SECONDS = 30.0
STOP_SECONDS = 30.0
LOG_LINES = 30
# A test wants its messages at once, and its data do not outlive it.
TEST_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "cairn.flush": "none"}
# Another broker leads soon. Not sooner: a machine that is busy may stand still for a while.
CLUSTER_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "cairn.session.ms": "2000"}
HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections: nobody takes a broker's port while it is down.
PORTS = range(20_000, 32_000)


class Broker:
    """One broker on this machine, started and stopped as a context manager, plain or async.

    Without `data` its directory is temporary and goes with it; settings are then those of tests: groups do not wait
    for more members, and nothing waits for the disk. `settings` go before them. `restart` keeps port and data.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        http: bool = False,
        settings: Mapping[str, object] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.port = port
        self.url: str | None = None  # of the status page, with `http=True`
        self._http = http
        self._flags = tuple(flags)
        self._temporary = data is None
        self._settings = {**(TEST_SETTINGS if self._temporary else {}), **(settings or {})}
        self._directory = Path(tempfile.mkdtemp(prefix="cairnmq-")) if data is None else Path(data)
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        if not self.port:
            raise Fault("the broker was not started: call start(), or use it in a with statement")
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self._directory / "data" if self._temporary else self._directory

    @property
    def log_path(self) -> Path:
        """What the broker logged, over all its starts."""
        return self._directory / "broker.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Fault("the broker was not started")
        return self._process.pid

    # ------------------------------------------------------------------------------------------------------ life

    def start(self) -> Self:
        """Returns when the broker accepts requests."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        if self.running:
            raise Fault(f"the broker is already running at {self.bootstrap}")
        self._directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C reaches your program alone, which then stops the broker in order.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,  # open as long as we live
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def await_ready(self) -> Self:
        """After `launch`: returns when the broker accepts requests."""
        assert self._process is not None, "launch comes first"
        ready = self._wait_ready(self._process)
        self.port = int(ready["bootstrap"].rpartition(":")[2])
        self.url = ready["http"] if self._http else None
        return self

    def _command(self) -> list[str]:
        line = [sys.executable, "-m", "cairnmq.cli.attached", "serve", "--data", str(self.data)]
        line += ["--listen", f"{HOST}:{self.port}"]
        line += ["--http", f"{HOST}:0"] if self._http else ["--no-http"]
        for name, value in self._settings.items():
            line += ["--set", f"{name}={value}"]
        return [*line, *self._flags]

    def _ended(self) -> None:
        """Its end of our pipe is closed too."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """Reads the ready line; a broker that fails closes its output, and one that hangs is killed."""
        assert process.stdout is not None
        guard = threading.Timer(START_SECONDS, process.kill)
        guard.daemon = True
        guard.start()
        try:
            for line in process.stdout:
                words = line.decode().split()
                if words[:2] == ["cairn", "ready"]:
                    return dict(word.split("=", 1) for word in words[2:])
        finally:
            guard.cancel()
            process.stdout.close()
        code = process.wait()
        self._ended()
        raise Fault(f"the broker did not start (exit code {code}):\n{self.log()}")

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """An orderly stop: everything is on disk, and the next start has nothing to recover."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
            self._ended()
        except subprocess.TimeoutExpired:
            self.kill()
            raise Fault(f"the broker did not stop within {timeout:g} s and was killed:\n{self.log()}") from None

    def kill(self) -> None:
        """As kill -9: what was acknowledged is there after `start`."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()
            self._ended()

    def restart(self) -> Self:
        """Stops it if it runs, and starts it on the same port and data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops it; temporary data go."""
        atexit.unregister(self.close)
        try:
            if self._temporary:
                self.kill()  # nobody will read the data again
            else:
                self.stop()
        finally:
            if self._temporary:
                shutil.rmtree(self._directory, ignore_errors=True)

    def log(self, lines: int = LOG_LINES) -> str:
        """The last lines of its log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    # ---------------------------------------------------------------------------------------------------- topics

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        from cairnmq.client.admin import NewTopic
        from cairnmq.client.blocking import Client

        with Client.connect(self.bootstrap, client_id="cairnmq-broker") as client:
            settings = {key: str(value) for key, value in (configs or {}).items()}
            client.create_topics([NewTopic(name, partitions, configs=settings)])

    def delete_topic(self, name: str) -> None:
        from cairnmq.client.blocking import Client

        with Client.connect(self.bootstrap, client_id="cairnmq-broker") as client:
            for refused in client.delete_topics([name]).values():
                if refused is not None:
                    raise refused

    # -------------------------------------------------------------------------------------------------- contexts

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class LocalCluster:
    """Several brokers on this machine that are one cluster, numbered from 1: they share a metadata file.

    Without `data` their directory is temporary and goes with them. `kill`, `restart`, `pause` and `resume` are for
    seeing what happens then.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: str | os.PathLike[str] | None = None,
        http: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary = data is None
        self.directory = Path(tempfile.mkdtemp(prefix="cairnmq-")) if data is None else Path(data)
        self.metadata = self.directory / "cluster.db"
        given = {**CLUSTER_SETTINGS, **(settings or {})}
        ports = _quiet_ports(brokers)
        self.brokers = {
            number: Broker(
                data=self.directory / f"broker-{number}",
                port=ports[number - 1],
                http=http,
                settings=given,
                flags=("--node-id", str(number), "--metadata", f"sqlite:{self.metadata}"),
            )
            for number in range(1, brokers + 1)
        }
        self._paused: set[int] = set()
        atexit.register(self.close)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def pid(self, number: int) -> int:
        return self.brokers[number].pid

    def start(self) -> Self:
        """Starts all at once; returns when each accepts requests."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.await_ready()
        return self

    def kill(self, number: int) -> None:
        """As kill -9."""
        self.brokers[number].kill()
        self._paused.discard(number)

    def stop(self, number: int) -> None:
        """An orderly stop: others lead before it ends."""
        self.resume(number)
        self.brokers[number].stop()

    def restart(self, number: int) -> None:
        """Starts it again with its port and data, whether it runs or not."""
        self.resume(number)
        self.brokers[number].restart()

    def pause(self, number: int) -> None:
        """It stands still and does not know it (SIGSTOP), until `resume`."""
        if self.brokers[number].running:
            os.kill(self.pid(number), signal.SIGSTOP)
            self._paused.add(number)

    def resume(self, number: int) -> None:
        if number in self._paused and self.brokers[number].running:
            os.kill(self.pid(number), signal.SIGCONT)
        self._paused.discard(number)

    def close(self) -> None:
        """Ends all; temporary data go."""
        atexit.unregister(self.close)
        with ExitStack() as stack:
            if self._temporary:
                stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            for number, broker in self.brokers.items():
                stack.callback(broker.close)
                if self._temporary:
                    stack.callback(broker.kill)  # nobody will read the data again
                stack.callback(self.resume, number)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _quiet_ports(count: int) -> list[int]:
    """Free ports out of PORTS."""
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise Fault(f"{count} ports from {PORTS.start} to {PORTS.stop - 1} are not free on {HOST}")
