"""Figures of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

from psutil import RLIMIT_NOFILE, Process

from cairnmq.broker.http.process_figures import boot_time, open_files_max, read_figures


def test_of_this_process() -> None:
    figures, known = read_figures(os.getpid()), Process()
    assert figures is not None
    assert abs(boot_time() + figures.started - known.create_time()) < 2
    assert 0 < figures.cpu_seconds <= sum(known.cpu_times()[:2]) + 0.02
    assert known.memory_info().rss / 2 < figures.resident_bytes < known.memory_info().rss * 2
    assert figures.virtual_bytes > figures.resident_bytes
    assert open_files_max() == known.rlimit(RLIMIT_NOFILE)[0]


def test_open_files_of_a_process_in_which_nothing_else_happens() -> None:
    """Threads that clients of earlier tests left here open and close files at any moment."""
    script = (
        "import os, psutil; from cairnmq.broker.http.process_figures import open_files\n"
        "few = open_files(); kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(100)]\n"
        "print(few, open_files(), psutil.Process().num_fds())"
    )
    few, many, known = map(int, subprocess.check_output([sys.executable, "-c", script]).split())
    assert many == few + 100 and abs(many - known) <= 1  # the listing of open files is a file, too


def test_of_a_process_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert read_figures(process.pid) is None
