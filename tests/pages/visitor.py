"""Somebody who reads a page and does what it says, in a directory and an environment of their own.

Pages name the usual ports, so blocks run in a network of their own (a namespace of Linux), where those are free. Blocks
that install something run outside of it. What a block sets in its shell holds for the next ones, as in one terminal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from broker_process import wait_until
from pages.page import Block

PATIENCE = 1200.0
START_PATIENCE = 120.0
_MINE = (
    "PYTHONDONTWRITEBYTECODE",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTEST_ADDOPTS",
    "CAIRN_BOOTSTRAP",
    "BASH_ENV",
    # `make test-long ARGS=...` hands its variables down in these: a visitor's `make run` would take them for its own.
    "MAKEFLAGS",
    "MAKEOVERRIDES",
    "MAKELEVEL",
    "MFLAGS",
    "ARGS",
    "WORKERS",
)
_LOOPBACK = "ip link set lo up && echo up && exec sleep infinity"


class Network:
    """A loopback interface of our own; `enter` is what a command line in it begins with."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[str] | None = None
        self.enter: list[str] = []
        for flags, enter in (([], []), (["--map-root-user"], ["--user", "--preserve-credentials"])):
            holder = subprocess.Popen(
                ["unshare", "--net", *flags, "sh", "-c", _LOOPBACK],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert holder.stdout is not None
            if holder.stdout.readline() == "up\n":
                self._holder = holder
                self.enter = ["nsenter", "--target", str(holder.pid), "--net", *enter]
                return
            holder.wait()
            holder.stdout.close()
        message = "needs a network namespace: run it as root, or allow unprivileged user namespaces"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)

    def close(self) -> None:
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout is not None
            self._holder.stdout.close()


class Visitor:
    """`said` is what the last block printed; `programs` go before PATH."""

    def __init__(self, directory: Path, programs: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.said = ""
        self._notes = directory.parent / f"{directory.name}-terminal"
        self._notes.mkdir()
        self._network = Network()
        self._servers: list[subprocess.Popen[bytes]] = []
        self._environment = {name: value for name, value in os.environ.items() if name not in _MINE}
        self._environment["SPARK_LOCAL_IP"] = "127.0.0.1"  # the host's own name leads out of its network
        ours = os.path.dirname(shutil.which("python") or "") if os.environ.get("VIRTUAL_ENV") else ""
        path = [part for part in os.environ["PATH"].split(":") if part != ours]
        self._environment["PATH"] = ":".join([*([str(programs)] if programs else []), *path])

    def do(self, block: Block) -> str:
        """Whatever the page wants done with it."""
        if block.file is not None:
            (self.directory / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / block.file).write_text(block.text)
            return ""
        if block.language == "python":
            program = self._notes / "program.py"
            program.write_text(block.text)
            return self.run(f"python {program}")
        assert block.language == "sh", f"nobody knows what to do with a block of {block.language!r}:\n{block.text}"
        if block.serves:
            self.serve(block.text)
            return ""
        return self.run(block.text, inside=not block.installs)

    def run(self, text: str, *, inside: bool = True) -> str:
        done = subprocess.run(
            self._shell(text, inside),
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        self.said = done.stdout
        assert done.returncode == 0, f"{text}\nended with {done.returncode}:\n{done.stdout}\n{self.log()}"
        return done.stdout

    def serve(self, text: str) -> None:
        """Returns when the broker says that it is ready."""
        with self._log.open("wb") as log:
            server = subprocess.Popen(
                self._shell(text, True),
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._servers.append(server)
        wait_until(lambda: "cairn ready" in self.log() or server.poll() is not None, START_PATIENCE, "a ready broker")
        assert server.poll() is None, f"{text}\nended:\n{self.log()}"

    def stop(self) -> None:
        """Ctrl-C in every terminal in which a broker runs."""
        for server in self._servers:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGINT)
        for server in self._servers:
            server.wait(START_PATIENCE)
        self._servers.clear()

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._network.close()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self._notes / "server.log"

    def _shell(self, text: str, inside: bool) -> list[str]:
        state, script = self._notes / "state.sh", self._notes / f"block-{len(list(self._notes.iterdir()))}.sh"
        script.write_text(text)
        line = f"[ -e {state} ] && . {state}; set -eo pipefail; . {script}; export -p > {state}"
        return [*(self._network.enter if inside else []), "bash", "--noprofile", "--norc", "-c", line]
