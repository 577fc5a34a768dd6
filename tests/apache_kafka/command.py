"""`cairn` as the tests here run it."""

from __future__ import annotations

import subprocess

from broker_process import CAIRN, Broker

SECONDS = 60


def cairn(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([CAIRN, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == code, f"cairn {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
    return done


def assert_sound(broker: Broker) -> None:
    """Stops the broker and checks every invariant that its files can show."""
    assert broker.stop() == 0, broker.log_tail()
    assert cairn("verify", str(broker.data)).stdout == ""
