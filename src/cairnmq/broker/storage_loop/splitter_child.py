"""Starts the splitter process, with a socket between it and the broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from cairnmq.broker.storage_loop.splitter_messages import pair

COMMAND = (sys.executable, "-m", "cairnmq.broker.storage_loop.splitter_process")


def start_splitter(
    lock_fds: Sequence[int], command: Sequence[str] = COMMAND
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and the broker's end of the socket. `lock_fds`: the locks of the directories, which it holds too."""
    ours, theirs = pair()
    try:
        ours.setblocking(False)
        process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno(), *lock_fds],
            stdin=subprocess.DEVNULL,
        )
    except Exception:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours
