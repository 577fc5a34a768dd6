"""A mounted file system that loses power on request: a process of its own, and the handle that tests hold.

As a program: `python -m chaos.forgetful_mount PLACE LIES_ABOUT`, a JSON command per line in, an answer per line out.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.forgetful_disk import AtRisk, ForgetfulDisk
from chaos.fuse import FuseServer

TESTS = Path(__file__).resolve().parents[1]
ANSWER_SECONDS = 60.0
FUSERMOUNT = "fusermount3"


def mount(place: Path) -> int:
    """The device of a new file system; fusermount3 sends it over a socket, so that this works without root too."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = "rw,nosuid,nodev,noatime,fsname=cairn-forgetful,subtype=forgetful"
        done = subprocess.run(
            [FUSERMOUNT, "-o", options, "--", str(place)],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(done.stderr.strip() or f"{FUSERMOUNT} failed")
        _, (device,), _, _ = socket.recv_fds(ours, 1, 1)
    os.set_inheritable(device, False)
    os.set_blocking(device, False)  # a request that was there may be taken back before it is read
    return device


def unmount(place: Path) -> None:
    """Lazily: a dead broker's last reference may still be on its way out."""
    subprocess.run([FUSERMOUNT, "-u", "-z", "--", str(place)], timeout=20, check=True, capture_output=True)


class NoMount(Exception):
    """Says what is missing."""


class Machine:
    """The process behind the mount."""

    def __init__(self, place: Path, lies_about: str) -> None:
        self.place = place
        self.disk = ForgetfulDisk(Random(0), lies_about=lies_about)
        self.server = FuseServer(mount(place), self.disk)

    def cut(self, seed: int) -> AtRisk:
        os.close(self.server.device)
        unmount(self.place)
        risked = self.disk.at_risk()
        self.disk = self.disk.lose_power(Random(seed))
        self.server = FuseServer(mount(self.place), self.disk)
        return risked

    def run(self) -> None:
        print(json.dumps({"mounted": str(self.place)}), flush=True)
        waiting = select.poll()
        waiting.register(sys.stdin, select.POLLIN | select.POLLHUP)
        waiting.register(self.server.device, select.POLLIN)
        while True:
            ready = dict(waiting.poll())
            if sys.stdin.fileno() in ready:
                line = sys.stdin.readline()
                if not line:
                    break
                waiting.unregister(self.server.device)
                answer = self.cut(json.loads(line)["cut"])
                waiting.register(self.server.device, select.POLLIN)
                print(json.dumps(answer._asdict()), flush=True)
            elif not self.server.serve_one():
                break
        os.close(self.server.device)
        unmount(self.place)


class ForgetfulMount:
    """The handle. `cut` after every process that uses the file system is dead.

    `lies_about`: files whose name ends so are never synced, whatever the answer says; tests of the tests want it.
    """

    def __init__(self, place: Path, lies_about: str = "") -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chaos.forgetful_mount", str(place), lies_about],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            text=True,
        )
        if "refused" in (first := self.answer()):
            self.process.wait(ANSWER_SECONDS)
            raise NoMount(first["refused"])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise AssertionError(f"the file system at {self.place} does not answer; exit code {self.process.poll()}")
        return dict(json.loads(line))

    def cut(self, seed: int) -> AtRisk:
        """Power loss: some of what was not synced is gone, and the rest is mounted again."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"cut": seed}) + "\n")
        self.process.stdin.flush()
        return AtRisk(**self.answer())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(ANSWER_SECONDS)


@contextmanager
def forgetful_mount(place: Path, lies_about: str = "") -> Iterator[ForgetfulMount]:
    """Where none can be mounted, a test is skipped on a desk and fails under CI=true."""
    try:
        if shutil.which(FUSERMOUNT) is None:
            raise NoMount(f"{FUSERMOUNT} is not installed")
        mounted = ForgetfulMount(place, lies_about)
    except NoMount as problem:
        reason = f"no file system in user space: {problem} (Debian package fuse3; `make test` installs it where it may)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        yield mounted
    finally:
        mounted.close()


def main() -> int:
    try:
        machine = Machine(Path(sys.argv[1]), sys.argv[2])
    except OSError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return 1
    machine.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
