"""Spark sessions in processes of their own: another version of Spark, another master, a CPU that can be measured."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from interop.clients.process import PROGRAMS_DIR, ClientProcess
from programs import require_program

TESTS = Path(__file__).parent.parent
PROGRAM = Path(__file__).with_name("program_session.py")
ANSWER_SECONDS = 300.0  # the first answer waits for the session
SPARK_4_2 = str(PROGRAMS_DIR / "spark_4_2")
"""A Python that finds Spark 4.2 with its own Kafka connector."""


def start_session(
    place: Path, master: str = "local[2,3]", python: str = sys.executable, settings: tuple[str, ...] = ()
) -> ClientProcess:
    """What it can be asked is in program_session.py."""
    require_program("java")
    require_program(python)
    place.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    line = ["env", f"PYTHONPATH={path}", f"--chdir={place}", python, str(PROGRAM), str(place), master, *settings]
    return ClientProcess(line, ANSWER_SECONDS)
