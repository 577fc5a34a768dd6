"""The broker's end of the splitter process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import uvloop

from cairnmq.broker.splitter_link import SplitterLink
from cairnmq.broker.splitter_messages import Begin, Finished, Report, Trouble

SECONDS = 10.0
# Says two things at once and ends without having read its orders.
HASTY = """
import socket, sys
from cairnmq.broker.splitter_messages import Finished, Trouble, framed
socket.socket(fileno=int(sys.argv[1])).sendall(framed(Finished()) + framed(Trouble("late")))
"""


def begin(resume: bool) -> Begin:
    return Begin("journals", "data", None, {0: 0}, 1000, 1000, True, None, 0)


def wait_for_its_end(pid: int) -> None:
    """Blocks the loop on purpose: report and end are there before it looks."""
    deadline = time.monotonic() + SECONDS
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        time.sleep(0.01)
        assert time.monotonic() < deadline


def test_a_splitter_that_ends_with_orders_unread_is_noticed(tmp_path: Path) -> None:
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

        lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
        link = SplitterLink(lock, begin, hear, before_successor, [sys.executable, "-c", HASTY])
        link.start()
        assert link.pid is not None
        wait_for_its_end(link.pid)
        async with asyncio.timeout(SECONDS):
            await succeeded.wait()
        link.closing()
        link.kill()
        os.close(lock)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert heard[:2] == [Finished(), Trouble("late")]
