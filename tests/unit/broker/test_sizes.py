"""Sizes of queue logs, measured by looking."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.sizes import Sizes
from unit.broker.rig import scenario


@scenario
async def test_log_files_count_and_others_do_not(tmp_path: Path) -> None:
    for partition, size in ((0, 10), (1, 20)):
        directory = tmp_path / "queues" / f"a-{partition}"
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(bytes(size))
        (directory / f"{5:020}.log").write_bytes(bytes(1))
        (directory / f"{0:020}.index").write_bytes(bytes(100))
    now = 0.0
    sizes = Sizes(str(tmp_path), lambda: now)
    measured = await sizes.current()
    assert (measured.of_partition("a", 0), measured.of_partition("a", 1), measured.of_partition("b", 0)) == (11, 21, 0)
    (tmp_path / "queues" / "a-0" / f"{9:020}.log").write_bytes(bytes(1000))
    assert (await sizes.current()).of_partition("a", 0) == 11
    now = 3600.0
    assert (await sizes.current()).of_partition("a", 0) == 1011


@scenario
async def test_a_disk_that_fails_once_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a-0", "b-0"):
        (tmp_path / "queues" / name).mkdir(parents=True)
        (tmp_path / "queues" / name / f"{0:020}.log").write_bytes(bytes(10))
    bad: list[str] = []

    def scandir(path: str, scandir: Callable[[str], Any] = os.scandir) -> Any:
        if path.endswith(tuple(bad)):
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    now = 0.0
    sizes = Sizes(str(tmp_path), lambda: now)

    async def seen() -> list[int]:
        nonlocal now
        now += 3600.0
        measured = await sizes.current()
        return [measured.of_partition(topic, 0) for topic in "ab"]

    assert await seen() == [10, 10]
    bad[:] = ["a-0"]
    assert await seen() == [0, 10]
    bad[:] = ["queues"]
    assert await seen() == [0, 10]
    bad[:] = []
    assert await seen() == [10, 10]


@scenario
async def test_nothing_there_yet_and_many_askers(tmp_path: Path) -> None:
    sizes = Sizes(str(tmp_path), lambda: 0.0)
    answers = await asyncio.gather(*(sizes.current() for _ in range(10)))
    assert {answer.of_partition("a", 0) for answer in answers} == {0}
