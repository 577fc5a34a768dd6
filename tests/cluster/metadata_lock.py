"""SQLite's write lock of the metadata file, as the kernel shows it: which process is inside a transaction."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCKS = Path("/proc/locks")
WRITER = "120"  # SQLite: of the bytes of the -shm file, the one that whoever writes has locked
TRY_SECONDS = 120.0  # only a failure uses it up


def writers(metadata: Path) -> set[int]:
    """Process ids; one at most, or none."""
    inode = str(os.stat(f"{metadata}-shm").st_ino)
    rows = (line.split() for line in LOCKS.read_text().splitlines())
    return {
        int(pid)
        for _, kind, _, mode, pid, file, start, *_ in (row for row in rows if "->" not in row)
        if (kind, mode, start) == ("POSIX", "WRITE", WRITER) and file.rpartition(":")[2] == inode
    }


@contextmanager
def stopped_inside(pid: int, metadata: Path) -> Iterator[None]:
    """SIGSTOP while it is inside a transaction, and SIGCONT at the end. It is tried until it comes out so."""
    deadline = time.monotonic() + TRY_SECONDS
    try:
        while True:
            if pid in writers(metadata):
                os.kill(pid, signal.SIGSTOP)
                _wait_stopped(pid, deadline)
                if pid in writers(metadata):
                    break
                os.kill(pid, signal.SIGCONT)
            assert time.monotonic() < deadline, f"process {pid} was never seen inside a transaction"
        yield
        assert pid in writers(metadata), "it was stopped, and left its transaction nevertheless"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _wait_stopped(pid: int, deadline: float) -> None:
    """All its threads."""
    tasks = Path(f"/proc/{pid}/task")
    while any(_state(each) != "T" for each in tasks.iterdir()):
        assert time.monotonic() < deadline, f"process {pid} did not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
