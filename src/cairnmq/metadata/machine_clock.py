"""The clock that all processes of one machine share, and the boot that it counts from."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from cairnmq.codec.crc32c import crc32c

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # without the first, the second counts suspended time
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_ms() -> int:
    """Since the boot. Nobody sets it, and it goes on while the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def boot_number() -> int:
    """Another one after each boot; 0 where the system does not say."""
    with suppress(OSError):
        return 1 + crc32c(_BOOT_ID.read_bytes())
    return 0
