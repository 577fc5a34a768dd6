"""`python -m cairnmq.cli.attached ...` is `cairn ...` that stops when its standard input ends.

That is how a broker ends with the program that started it (local_broker.py), however that one ended. The kernel's own
signal for this would come when the thread that started us ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from cairnmq.cli.main import main


def follow() -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=follow, name="follow-parent", daemon=True).start()
    sys.exit(main())
