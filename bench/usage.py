"""What a server costs: CPU and memory of its whole process tree, its open files, the names in its directories."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
from msgspec import Struct

LOOK_SECONDS = 1.0
QUIET_SHARE = 0.05  # of one core, for each broker


class Calm(Struct):
    """Since when CPU time barely grows, and how much of it was used by then: to be idle is nobody's work. `share`: of a
    core, what counts as idle."""

    since: float
    cpu: float
    seen_at: float
    seen_cpu: float
    share: float = QUIET_SHARE

    @classmethod
    def begin(cls, at: float, cpu: float, share: float = QUIET_SHARE) -> Calm:
        return cls(at, cpu, at, cpu, share)

    def look(self, at: float, cpu: float) -> None:
        if cpu - self.seen_cpu >= self.share * (at - self.seen_at):
            self.since, self.cpu = at, cpu
        self.seen_at, self.seen_cpu = at, cpu

    @property
    def lasts(self) -> float:
        return self.seen_at - self.since


def below(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]


def pss_of(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0


class Tree:
    """A process and all below it, looked up anew each time: servers start and end helpers. A cluster is several."""

    def __init__(self, *pids: int) -> None:
        self.roots = [psutil.Process(pid) for pid in pids]

    def processes(self) -> list[psutil.Process]:
        return [process for root in self.roots for process in below(root)]

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
        """Proportional set size: shared pages are counted once, not once per process. Of a cluster, that of the broker
        that has most."""
        return max(sum(map(pss_of, below(root))) for root in self.roots) / 1e6

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
        calm = Calm.begin(time.monotonic(), self.cpu(), QUIET_SHARE * len(self.roots))
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
