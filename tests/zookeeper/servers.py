"""Real ZooKeeper servers as tests need them: one or three JVMs on free ports, killed and paused by their pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker_process import fixed_port, wait_until
from interop.clients.process import PROGRAMS_DIR
from programs import require_program

SECONDS = 90.0  # only a failure uses it up
TICK_MS = 500
COMMON = f"""
tickTime={TICK_MS}
initLimit=20
syncLimit=8
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
"""
# The page cache outlives a process that is killed.
FLAGS = "-Dzookeeper.forceSync=no -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class Server:
    """One of them; lives through any number of processes."""

    def __init__(self, directory: Path, number: int) -> None:
        self.number = number
        self.directory = directory / f"zookeeper{number}"
        self.port, self.peer_port, self.election_port = fixed_port(), fixed_port(), fixed_port()
        self.process: subprocess.Popen[bytes] | None = None
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "data" / "myid").write_text(str(number))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def configure(self, peers: Iterable[Server], lines: Mapping[str, str]) -> None:
        text = f"{COMMON}dataDir={self.directory / 'data'}\n"
        text += "".join(f"{name}={value.replace('PORT', str(self.port))}\n" for name, value in lines.items())
        if "secureClientPort" not in lines:
            text += f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n"
        peers = list(peers)
        if len(peers) > 1:
            text += "".join(f"server.{peer.number}=127.0.0.1:{peer.peer_port}:{peer.election_port}\n" for peer in peers)
        (self.directory / "zoo.cfg").write_text(text)

    def launch(self, flags: str = "") -> None:
        launcher = require_program(str(PROGRAMS_DIR / "zookeeper"))
        with (self.directory / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [launcher, str(self.directory / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "JVM_FLAGS": f"{FLAGS} {flags}"},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def said(self) -> str:
        """What it says of itself; empty while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2.0) as asked:
                asked.sendall(b"srvr")
                return b"".join(iter(lambda: asked.recv(4096), b"")).decode()
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """leader, follower or standalone; empty while it serves nobody."""
        return next((line.partition(": ")[2] for line in self.said().splitlines() if line.startswith("Mode: ")), "")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(SECONDS)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class Servers:
    """All of them. `flags` are the JVM's, `lines` of the configuration."""

    def __init__(
        self, directory: Path, count: int = 1, *, flags: str = "", lines: Mapping[str, str] | None = None
    ) -> None:
        require_program(str(PROGRAMS_DIR / "zookeeper"))
        self.flags = flags
        self.each = [Server(directory, number) for number in range(1, count + 1)]
        for server in self.each:
            server.configure(self.each, lines or {})

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.each]

    @contextmanager
    def up(self) -> Iterator[Servers]:
        try:
            self.start()
            yield self
        finally:
            self.kill()

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Those that are down."""
        for server in self.each:
            if not server.running:
                server.launch(self.flags)

    def wait_ready(self) -> None:
        for server in self.each:
            wait_until(lambda server=server: server.mode, SECONDS, f"ZooKeeper {server.number}")  # type: ignore[misc]

    def kill(self) -> None:
        for server in self.each:
            server.kill()

    @property
    def leader(self) -> Server:
        """Waits until there is one."""
        wait_until(self._leaders, SECONDS, "a leader of ZooKeeper")
        return self._leaders()[0]

    def _leaders(self) -> list[Server]:
        return [server for server in self.each if server.running and server.mode in ("leader", "standalone")]
