"""The broker's end of the splitter process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cairnmq.broker.storage_loop import splitter_link
from cairnmq.broker.storage_loop.splitter_child import start_splitter
from cairnmq.broker.storage_loop.splitter_link import SplitterLink
from cairnmq.broker.storage_loop.splitter_messages import Begin, Finished, Report, Trouble
from cairnmq.errors import Corrupt
from unit.broker.rig import scenario, until

SECONDS = 60.0
# Says two things at once and ends without having read its orders.
HASTY = """
import socket, sys
from cairnmq.broker.storage_loop.splitter_messages import Finished, Trouble, framed
socket.socket(fileno=int(sys.argv[1])).sendall(framed(Finished()) + framed(Trouble("late")))
"""

# Says that it has begun, and waits for the end of the broker.
STEADY = """
import socket, sys
from cairnmq.broker.storage_loop.splitter_messages import Begun, framed
link = socket.socket(fileno=int(sys.argv[1]))
link.sendall(framed(Begun()))
while link.recv(1 << 20):
    pass
"""
# Ends in the middle of its beginning.
HOPELESS = """
import socket, sys
from cairnmq.broker.storage_loop.splitter_messages import Ask, framed
socket.socket(fileno=int(sys.argv[1])).sendall(framed(Ask([1])))
"""


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[int]]:
    with open(tmp_path / "lock", "w") as file:
        yield [file.fileno()]


def starting(command: list[str]) -> Any:
    """Starts this program in place of the splitter."""
    return lambda lock_fds: start_splitter(lock_fds, command)


def begin(resume: bool) -> Begin:
    return Begin("journals", "data", None, [0], {0: 0}, 1000, 1000, True, None, 0)


def wait_for_its_end(pid: int) -> None:
    """Blocks the loop on purpose: report and end are there before it looks."""
    deadline = time.monotonic() + SECONDS
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        time.sleep(0.01)
        assert time.monotonic() < deadline


def test_a_splitter_that_ends_with_orders_unread_is_noticed(locks: list[int]) -> None:
    """libuv tells of such an end only once, with the first report: who waits for another call waits for ever."""
    heard: list[Report] = []

    def hear(report: Report) -> None:
        heard.append(report)
        if report == Finished():
            raise ValueError("this report cannot be taken in; what follows must be")

    async def scenario() -> None:
        succeeded = asyncio.Event()

        async def before_successor() -> None:
            succeeded.set()

        link = SplitterLink(locks, begin, hear, before_successor, starting([sys.executable, "-c", HASTY]))
        link.start()
        assert link.pid is not None
        wait_for_its_end(link.pid)
        async with asyncio.timeout(SECONDS):
            await succeeded.wait()
        link.closing()
        link.kill()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert heard[:2] == [Finished(), Trouble("late")]


@scenario
async def test_whatever_is_in_the_way_of_a_successor_is_told_and_tried_again(
    locks: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first failure ended all restarts, without a word; in the end all producers waited."""
    failures: list[Exception] = [Corrupt("the checkpoint is torn"), ValueError("a mistake of ours")]
    troubles: list[str] = []
    start = subprocess.Popen

    async def before_successor() -> None:
        troubles.append(link.trouble)
        if failures:
            raise failures.pop(0)

    def fork(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        monkeypatch.setattr(subprocess, "Popen", start)
        raise BlockingIOError("no memory for a process")

    monkeypatch.setattr(splitter_link, "RESTART_SECONDS_MAX", 0.01)
    link = SplitterLink(locks, begin, lambda report: None, before_successor, starting([sys.executable, "-c", STEADY]))
    link.start()
    first = link.pid
    assert first is not None
    monkeypatch.setattr(subprocess, "Popen", fork)
    os.kill(first, signal.SIGKILL)
    await until(lambda: link.pid != first and not link.trouble)
    link.kill()
    why = ["the checkpoint is torn", "a mistake of ours", "no memory for a process"]
    assert troubles == ["", *(f"splitter cannot be started: {reason}" for reason in why)]
    assert all(reason in caplog.text for reason in why)
    assert caplog.text.count("Traceback") == 1, "of what nobody foresaw"


@scenario
async def test_successors_that_end_before_they_begin_are_a_trouble(
    locks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before_successor() -> None:
        pass

    monkeypatch.setattr(splitter_link, "RESTART_SECONDS_MAX", 0.1)
    command = [sys.executable, "-c", HOPELESS]
    link = SplitterLink(locks, begin, lambda report: None, before_successor, starting(command))
    link.start()
    await until(lambda: link.restarts == 1)
    assert not link.trouble, "its successor may do better"
    await until(lambda: link.restarts == 3)
    assert "splitter cannot be started" in link.trouble
    command[2] = STEADY
    await until(lambda: not link.trouble)
    link.kill()
