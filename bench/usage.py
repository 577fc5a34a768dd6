"""What a server costs: CPU and memory of its whole process tree, its open files, the names in its directories."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
from msgspec import Struct

LOOK_SECONDS = 1.0
QUIET_SHARE = 0.05  # of one core


class Calm(Struct):
    """Since when CPU time barely grows, and how much of it was used by then: to be idle is nobody's work."""

    since: float
    cpu: float
    seen_at: float
    seen_cpu: float

    @classmethod
    def begin(cls, at: float, cpu: float) -> Calm:
        return cls(at, cpu, at, cpu)

    def look(self, at: float, cpu: float) -> None:
        if cpu - self.seen_cpu >= QUIET_SHARE * (at - self.seen_at):
            self.since, self.cpu = at, cpu
        self.seen_at, self.seen_cpu = at, cpu

    @property
    def lasts(self) -> float:
        return self.seen_at - self.since


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

    def settle(self, seconds: float = 120.0, quiet: float = LOOK_SECONDS) -> Calm | None:
        """Waits until it was quiet for so long; None if it never is."""
        deadline = time.monotonic() + seconds
        calm = Calm.begin(time.monotonic(), self.cpu())
        while calm.lasts < quiet:
            if time.monotonic() > deadline:
                return None
            time.sleep(LOOK_SECONDS)
            calm.look(time.monotonic(), self.cpu())
        return calm

    def quiet_after(self, seconds: float) -> float:
        """How long it took to become quiet."""
        start = time.perf_counter()
        self.settle(seconds)
        return time.perf_counter() - start


def directory_entries(directory: Path) -> int:
    """Every name below the directory, files and directories alike."""
    return sum(len(names) + len(files) for _, names, files in os.walk(directory))
