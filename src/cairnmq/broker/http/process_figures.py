"""CPU, memory and open files of a process, as Linux tells them in /proc."""

from __future__ import annotations

import os
import resource

from msgspec import Struct

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessFigures(Struct, frozen=True):
    cpu_seconds: float
    virtual_bytes: int
    resident_bytes: int
    started: float  # seconds since the machine was


def read_figures(pid: int) -> ProcessFigures | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # a name may hold anything, also a bracket
    except OSError:
        return None
    # proc(5) counts from 1, and two fields stand before the bracket
    user, system, start, virtual, resident = (int(fields[n - 3]) for n in (14, 15, 22, 23, 24))
    return ProcessFigures((user + system) / _TICKS, virtual, resident * _PAGE, start / _TICKS)


def boot_time() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        return next(float(line.split()[1]) for line in file if line.startswith("btime"))


def open_files() -> int:
    """Newer kernels tell the number as a size; on others the directory is counted."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
