"""Spark sessions in processes of their own: another version of Spark, another master, a CPU that can be measured."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from interop.clients.contract import Got
from interop.clients.process import PROGRAMS_DIR, ClientProcess, bytes_of, got
from programs import require_program

TESTS = Path(__file__).parent.parent
PROGRAM = Path(__file__).with_name("program_session.py")
ANSWER_SECONDS = 300.0  # the first answer waits for the session
SPARK_4_2 = str(PROGRAMS_DIR / "spark_4_2")
"""A Python that finds Spark 4.2 with its own Kafka connector."""
NOTEBOOK = str(PROGRAMS_DIR / "notebook")
"""A Python that finds what a client of Spark Connect needs, and matplotlib."""
RECORD = """SELECT partition, offset, unix_millis(timestamp), base64(key), base64(value),
    transform(coalesce(headers, array()), each -> struct(each.key, base64(each.value))), timestampType = 1
    FROM source"""
VALUES = "SELECT base64(value) FROM source"


def start_session(
    place: Path,
    master: str = "local[2,3]",
    python: str = sys.executable,
    settings: tuple[str, ...] = (),
    packages: Path | None = None,
) -> ClientProcess:
    """What it can be asked is in program_session.py. `packages`: a directory of more of them."""
    require_program("java")
    require_program(python)
    place.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(str(each) for each in (TESTS, packages, os.environ.get("PYTHONPATH")) if each)
    line = ["env", f"PYTHONPATH={path}", f"--chdir={place}", python, str(PROGRAM), str(place), master, *settings]
    return ClientProcess(line, ANSWER_SECONDS)


class Connector:
    """A format of a session, by its name, on one broker."""

    def __init__(self, session: ClientProcess, bootstrap: str, name: str) -> None:
        self.session = session
        self.bootstrap = bootstrap
        self.name = name

    def at(self, **options: object) -> tuple[str, dict[str, str]]:
        named = {key: str(value) for key, value in options.items()}
        return self.name, {"kafka.bootstrap.servers": self.bootstrap, **named}

    def records(self, **options: object) -> list[Got]:
        lines = self.session.ask("collect", source=self.at(includeHeaders="true", **options), sql=RECORD)
        return sorted(map(got, lines))

    def values(self, **options: object) -> list[bytes]:
        lines = self.session.ask("collect", source=self.at(**options), sql=VALUES)
        return sorted(bytes_of(line[0]) or b"" for line in lines)
