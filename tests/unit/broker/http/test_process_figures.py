"""Figures of real processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

from psutil import Process

from cairnmq.broker.http.process_figures import boot_time, open_files, open_files_max, read_figures


def test_of_this_process() -> None:
    gc.collect()  # what earlier tests of this process left open is not closed in the middle of this one
    figures, known = read_figures(os.getpid()), Process()
    assert figures is not None
    assert abs(boot_time() + figures.started - known.create_time()) < 2
    assert 0 < figures.cpu_seconds <= sum(known.cpu_times()[:2]) + 0.02
    assert known.memory_info().rss / 2 < figures.resident_bytes < known.memory_info().rss * 2
    assert figures.virtual_bytes > figures.resident_bytes
    assert abs(open_files() - known.num_fds()) <= 1 and open_files_max() == known.rlimit(7)[0]


def test_of_a_process_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert read_figures(process.pid) is None
