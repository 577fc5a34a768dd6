"""The generated classes are what the schema table says now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_messages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate_messages.py", "--check"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
