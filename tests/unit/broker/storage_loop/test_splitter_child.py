"""The splitter's process as it is started: its end of the socket, the locks that it holds."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.broker.storage_loop import splitter_child
from cairnmq.broker.storage_loop.splitter_child import start_splitter

ECHO = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.sendall(sys.argv[2].encode()); s.recv(1)"


def test_it_has_the_other_end_and_the_locks(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file, (tmp_path / "lock").open("w") as other:
        fcntl.flock(file, fcntl.LOCK_EX)
        process, ours = start_splitter([file.fileno()], [sys.executable, "-c", ECHO])
        ours.setblocking(True)
        assert ours.recv(100), "the parent's number"
        file.close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours.close()
        process.wait()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_no_process_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list(splitter_child.pair())

    def refuse(*args: object, **kwargs: object) -> None:
        raise BlockingIOError("no memory for a process")

    monkeypatch.setattr(splitter_child, "pair", lambda: made)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(BlockingIOError):
        start_splitter([])
    assert [each.fileno() for each in made] == [-1, -1]
