"""`cairn demo`: what it says, groups that live, and that nothing of it stays."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker_process import has_ended, wait_until
from interop.shell import SECONDS, Shell

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 0)]


class Demo:
    """A demo that runs, and what it has said."""

    def __init__(self) -> None:
        self.process = Shell("").start("demo")
        assert self.process.stdout
        lines = [self.process.stdout.readline().decode().rstrip() for _ in range(5)]
        self.bootstrap = lines[0].removeprefix("bootstrap").strip()
        self.url = lines[1].removeprefix("status page").strip()
        self.commands = [line.removeprefix("try").strip() for line in lines[2:]]
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.below = below
        self.directories = {
            Path(words[words.index("--data") + 1]).parent for p in below if "--data" in (words := p.cmdline())
        }

    def group(self, name: str) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/groups/{name}", timeout=SECONDS) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except urllib.error.HTTPError:
            return None

    def lives(self, name: str, members: int, partitions: int) -> bool:
        """All members are there, and each has its share."""
        group = self.group(name)
        if group is None or group["state"] != "Stable":
            return False
        shares = [member["partitions"] for member in group["members"]]
        return len(shares) == members and sum(shares) == partitions and min(shares) > 0


@pytest.fixture
def demo() -> Iterator[Demo]:
    demo = Demo()
    yield demo
    demo.process.kill()
    demo.process.communicate()


def test_its_groups_live_and_commit(demo: Demo) -> None:
    wait_until(lambda: demo.lives("billing", 2, 4), SECONDS, "the two members of billing")
    wait_until(lambda: demo.lives("analytics", 3, 8), SECONDS, "the three members of analytics")

    def commits() -> bool:
        group = demo.group("billing")
        return group is not None and sum(row["committed"] for row in group["offsets"]) > 0

    wait_until(commits, SECONDS, "a committed offset")


@pytest.mark.parametrize("number, code", SIGNALS, ids=lambda value: getattr(value, "name", ""))
def test_it_stops_clean_and_leaves_nothing_behind(demo: Demo, number: signal.Signals, code: int) -> None:
    wait_until(lambda: demo.lives("billing", 2, 4), SECONDS, "the members of billing")
    assert demo.directories and all(directory.exists() for directory in demo.directories)
    demo.process.send_signal(number)
    _, errors = demo.process.communicate(timeout=SECONDS)
    assert demo.process.returncode == code
    assert b"Traceback" not in errors and b"Exception" not in errors, errors
    wait_until(lambda: all(map(has_ended, demo.below)), SECONDS, "the end of its broker and splitter")
    assert not any(directory.exists() for directory in demo.directories)


def test_killed_it_takes_its_broker_along(demo: Demo) -> None:
    demo.process.kill()
    demo.process.wait()
    try:
        assert demo.below
        wait_until(lambda: all(map(has_ended, demo.below)), SECONDS, "the end of its broker and splitter")
    finally:
        for directory in demo.directories:
            shutil.rmtree(directory)


def test_the_commands_that_it_names_work(demo: Demo) -> None:
    assert len(demo.commands) == 3
    consume, describe, produce = demo.commands
    assert Shell("")(*shlex.split(consume)[1:], "-o", "start", "-n", "3").out.count(b"customer") >= 3
    wait_until(lambda: demo.lives("analytics", 3, 8), SECONDS, "the members of analytics")
    assert "Stable" in Shell("")(*shlex.split(describe)[1:]).out.decode()
    said, _, rest = produce.partition(" | ")
    Shell("")(*shlex.split(rest)[1:], stdin=subprocess.run(shlex.split(said), capture_output=True).stdout)


@pytest.mark.long
def test_the_lag_of_one_group_comes_and_goes(demo: Demo) -> None:
    """It takes a minute."""

    def lag() -> int:
        group = demo.group("analytics")
        return group["lag"] if group is not None else 0

    wait_until(lambda: lag() > 800, 3 * SECONDS, "a lag")
    wait_until(lambda: lag() < 400, 3 * SECONDS, "its end")
