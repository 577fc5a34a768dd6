"""Defects of a broker's shells, for the simulation of whole brokers to find."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.broker.storage_loop.splitter_control import SplitterControl
from cairnmq.broker.storage_loop.splitter_link import SplitterLink


def told_before_written(patch: pytest.MonkeyPatch) -> None:
    """A write on a thread counts when it begins."""

    def write(loop: JournalLoop, group: Any) -> None:
        loop._loop.run_in_executor(loop.threads.write, loop.path.write, group)
        loop._written(group)

    patch.setattr(JournalLoop, "_write", write)


def told_before_synced(patch: pytest.MonkeyPatch) -> None:
    """A sync counts when it begins."""

    def sync(loop: JournalLoop) -> None:
        if loop._syncing:
            return
        loop._syncing = True
        loop.path.sync_begins()
        loop._loop.run_in_executor(loop.threads.sync, loop.path.sync)
        done: asyncio.Future[int] = loop._loop.create_future()
        done.set_result(loop.path.journal.end)
        loop._loop.call_soon(loop._synced, loop.runtime.seconds(), done)

    patch.setattr(JournalLoop, "sync", sync)


def successor_without_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A splitter that died may have made a checkpoint which it did not report."""

    async def go_on(control: SplitterControl) -> None: ...

    patch.setattr(SplitterControl, "_return_to_checkpoint", go_on)


def end_of_splitter_missed(patch: pytest.MonkeyPatch) -> None:
    """Nobody starts another one."""
    patch.setattr(SplitterLink, "_ended", lambda link: link._loop.remove_reader(link._socket))
