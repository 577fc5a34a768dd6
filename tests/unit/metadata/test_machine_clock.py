"""All processes of the machine read the same clock and the same boot."""

from __future__ import annotations

import subprocess
import sys

from cairnmq.metadata.machine_clock import boot_ms, boot_number

_READ = "from cairnmq.metadata.machine_clock import *; print(boot_ms(), boot_number())"


def test_another_process_reads_the_same() -> None:
    before = boot_ms()
    ms, boot = map(int, subprocess.check_output([sys.executable, "-c", _READ]).split())
    assert before <= ms <= boot_ms()
    assert boot == boot_number() and 0 < boot < 2**63
