"""A real `cairn serve` as tests handle it: start, stop, kill whole or in part, restart on the same port and data."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

CAIRN = str(Path(sys.executable).with_name("cairn"))
START_SECONDS = 120.0  # on a machine that others use too; only a failure uses it up
STOP_SECONDS = 150.0  # longer than a broker waits for its splitter: how it ended is then in its log
POLL_SECONDS = 0.01


_claims: list[socket.socket] = []
"""One for each port of `fixed_port`, held until this process ends."""


def fixed_port() -> int:
    """A free port below the kernel's ephemeral range: no outgoing connection takes it while the broker is dead.

    Nor does another test process: a name in the abstract socket namespace of Linux says that the port is taken.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0cairnmq-test-port-{port}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Polls for something that gives no event (a process's death, a child's birth), and says what it waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(POLL_SECONDS)


def has_ended(process: psutil.Process) -> bool:
    """Its files are closed; that its new parent, which may be slow, has not asked how it ended is no matter."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Broker:
    """One broker on one data directory; lives through any number of processes."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        flags: Iterable[str] = (),
        port: int = 0,
        http: bool = True,
        journal_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "data"
        self.log_path = directory / "stderr.log"
        self.ready_path = directory / "ready.json"
        self.settings = dict(settings or {})
        self.flags = tuple(flags)
        self.http_wanted = http
        self.journal_dir = journal_dir
        self.environment = dict(environment or {})
        self.port = port
        self.bootstrap = ""
        self.http: str | None = None
        self.pid = 0
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, extra: Mapping[str, str]) -> list[str]:
        line = [CAIRN, "serve", "--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        line += ["--http", "127.0.0.1:0"] if self.http_wanted else ["--no-http"]
        line += ["--ready-file", str(self.ready_path)]
        if self.journal_dir is not None:
            line += ["--journal-dir", str(self.journal_dir)]
        for name, value in {**self.settings, **extra}.items():
            line += ["--set", f"{name}={value}"]
        return [*line, *self.flags]

    def launch(self, **extra: str) -> None:
        """Starts the process without waiting for it to be ready (it may be meant to die first)."""
        assert self.process is None or self.process.poll() is not None, "already running"
        self.ready_path.unlink(missing_ok=True)
        self.starts += 1
        with self.log_path.open("ab") as log, (self.directory / "stdout.log").open("ab") as out:
            log.write(f"--- start {self.starts}\n".encode())
            log.flush()
            named = {name.replace("_", "."): value for name, value in extra.items()}
            self.process = subprocess.Popen(
                self.command(named),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )
        self.pid = self.process.pid

    def start(self, **extra: str) -> Broker:
        """Starts and waits for the ready file; `cairn_fault_point="x"` adds `--set cairn.fault.point=x`."""
        self.launch(**extra)
        return self.wait_ready()

    def wait_ready(self) -> Broker:
        """After `launch`."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self.ready_path.exists():
            code = self.process.poll()
            if code is not None:
                raise AssertionError(f"cairn serve ended with {code} before it was ready\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"cairn serve was not ready after {START_SECONDS:g} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)
        ready = json.loads(self.ready_path.read_text())
        self.bootstrap, self.http, self.pid = ready["bootstrap"], ready["http"], ready["pid"]
        self.port = self.port or int(self.bootstrap.rpartition(":")[2])
        return self

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM to the root; returns its exit code."""
        assert self.process is not None
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill_tree()
            raise AssertionError(f"no end {seconds:g} s after SIGTERM\n{self.log_tail()}") from None

    def tree(self) -> list[psutil.Process]:
        """The root and all below it, root first. None once the root has ended: its number may be another's by now."""
        if not self.running:
            return []
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def splitter(self) -> psutil.Process | None:
        """The child that splits, if splitting has a process of its own."""
        for child in self.tree()[1:]:
            try:
                if "split" in " ".join([child.name(), *child.cmdline()]):
                    return child
            except psutil.NoSuchProcess:
                continue
        return None

    def kill_tree(self) -> None:
        """kill -9 of every process: all are stopped first, so that none sees another die."""
        members = self.tree()
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for member in members:
                try:
                    member.send_signal(signal_number)
                except psutil.NoSuchProcess:
                    continue
        self.wait_dead()
        wait_until(lambda: all(map(has_ended, members[1:])), START_SECONDS, "the death of what the broker had started")

    def kill_broker(self) -> None:
        """kill -9 of the root alone; whatever it started is left to notice by itself."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_dead()

    def kill_splitter(self) -> psutil.Process:
        """kill -9 of the splitter alone; returns the dead."""
        child = self.splitter()
        assert child is not None, "no splitter process to kill"
        child.kill()
        return child

    def wait_dead(self, seconds: float = START_SECONDS) -> int:
        """Waits for the root to end by itself; returns its exit code (-9 when killed)."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker still lives after {seconds:g} s\n{self.log_tail()}") from None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def close(self) -> None:
        """Ends what still runs, and fails if any of the processes wrote a traceback."""
        foreign = self.tree()
        if self.running:
            self.kill_tree()
        for stray in foreign:
            if stray.is_running():
                stray.kill()
        log = self.log()
        assert "Traceback (most recent call last)" not in log, f"traceback in the broker's log\n{self.log_tail(120)}"
