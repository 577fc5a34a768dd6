"""The machine at the moment of a measurement: a figure without them says little on a shared machine."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

BLOCK = 1 << 20
SYNCS = 40


def disk_probes(directory: Path, megabytes: int) -> dict[str, float]:
    """Latency of fdatasync after 4 KiB, and the speed of one sequential file that is synced at its end."""
    path = directory / "probe"
    times = []
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        for _ in range(SYNCS):
            os.write(descriptor, bytes(4096))
            start = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
        block = os.urandom(BLOCK)
        start = time.perf_counter()
        for _ in range(megabytes):
            os.write(descriptor, block)
        os.fdatasync(descriptor)
        seconds = time.perf_counter() - start
    finally:
        os.close(descriptor)
        path.unlink()
    return {
        "fdatasync_p50_ms": statistics.median(times) * 1000,
        "fdatasync_max_ms": max(times) * 1000,
        "write_mb_s": megabytes * BLOCK / 1e6 / seconds,
        "load_average": os.getloadavg()[0],
    }


class CpuMeter:
    """Shares of the machine's CPU time since the meter was made."""

    def __init__(self) -> None:
        self.before = _cpu_ticks()

    def steal_percent(self) -> float:
        """What the hypervisor gave to others."""
        spent = self._spent()
        return 100 * spent[7] / max(1, sum(spent))

    def busy_percent(self) -> float:
        """All but idle time and waiting for disks."""
        spent = self._spent()
        return 100 * (sum(spent) - spent[3] - spent[4]) / max(1, sum(spent))

    def _spent(self) -> list[int]:
        return [now - then for now, then in zip(_cpu_ticks(), self.before, strict=True)]


def _cpu_ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal"""
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def busy_percent(seconds: float = 1.0) -> float:
    """How busy the machine is while the bench itself does nothing: what is not zero here is somebody else."""
    meter = CpuMeter()
    time.sleep(seconds)
    return meter.busy_percent()


def memory_bytes(name: str) -> int:
    """A line of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise KeyError(name)


def machine() -> str:
    """One line about what does not change during a run."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = os.uname().release
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {kernel}"
