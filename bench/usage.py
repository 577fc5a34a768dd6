"""What a server costs: CPU and memory of its whole process tree, its open files, the names in its directories."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

QUIET_SECONDS = 1.0
QUIET_SHARE = 0.05  # of one core


class Tree:
    """The process `pid` and all below it, looked up anew each time: servers start and end helpers."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)

    def processes(self) -> list[psutil.Process]:
        return [self.root, *self.root.children(recursive=True)]

    def cpu(self) -> float:
        """User and system seconds so far, those of ended children included."""
        total = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def pss_mb(self) -> float:
        """Proportional set size: shared pages are counted once, not once per process."""
        total = 0
        for process in self.processes():
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total / 1e6

    def open_files(self) -> int:
        total = 0
        for process in self.processes():
            try:
                total += process.num_fds()
            except psutil.NoSuchProcess:
                continue
        return total

    def settle(self, seconds: float = 120.0) -> bool:
        """Waits until work that was put off is done, so that it is paid for too; False if it never ends."""
        deadline = time.monotonic() + seconds
        before = self.cpu()
        while time.monotonic() < deadline:
            time.sleep(QUIET_SECONDS)
            now = self.cpu()
            if now - before < QUIET_SHARE * QUIET_SECONDS:
                return True
            before = now
        return False

    def quiet_after(self, seconds: float) -> float:
        """How long it took to become quiet."""
        start = time.perf_counter()
        self.settle(seconds)
        return time.perf_counter() - start


def directory_entries(directory: Path) -> int:
    """Every name below the directory, files and directories alike."""
    return sum(len(names) + len(files) for _, names, files in os.walk(directory))
