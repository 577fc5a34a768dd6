"""What a worker process does once."""

from __future__ import annotations

import subprocess
import sys


def test_modules_are_not_looked_at_when_garbage_is_collected() -> None:
    program = "import gc; from cairnmq.spark.worker import this_worker; this_worker(); print(gc.get_freeze_count())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(result.stdout) > 1000
