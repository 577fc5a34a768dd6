"""Which Java Spark would start, and what is wrong with it: Spark itself only says that its gateway has exited."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

LEAST_VERSION = 17
ANSWER_SECONDS = 30
_NEEDED = f"Spark needs Java {LEAST_VERSION} or newer"
_ADVICE = "install it (Debian: default-jre-headless) or set JAVA_HOME to its directory"


def complaint(environment: Mapping[str, str]) -> str | None:
    """A sentence; None where Java is not the trouble."""
    home = environment.get("JAVA_HOME")
    java = _found(environment)
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        return f"no Java found {where}: {_NEEDED}; {_ADVICE}"
    version = version_of(_said(java))
    if version is None:
        return f"{java} does not report its version: {_NEEDED}; {_ADVICE}"
    if version < LEAST_VERSION:
        return f"{java} is Java {version}: {_NEEDED}; {_ADVICE}"
    return None


def version_of(text: str) -> int | None:
    """From what `java -version` prints; Java 8 and older say 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def _found(environment: Mapping[str, str]) -> str | None:
    """Where Spark's own scripts look."""
    home = environment.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java", path=environment.get("PATH", ""))


def _said(java: str) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
