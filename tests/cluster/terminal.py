"""A command of `cairn` on a terminal of its own, where it asks and is answered."""

from __future__ import annotations

import os
import subprocess

from broker_process import CAIRN
from cluster.brokers import COMMAND_SECONDS


def answered(answer: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What it says, and how it ends, when somebody types `answer`."""
    ours, theirs = os.openpty()
    try:
        with subprocess.Popen([CAIRN, *words], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            os.write(ours, f"{answer}\n".encode())
            try:
                out, err = process.communicate(timeout=COMMAND_SECONDS)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())  # type: ignore[arg-type]
    finally:
        os.close(ours)
        os.close(theirs)
