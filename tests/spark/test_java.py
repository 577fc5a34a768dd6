"""A session that cannot start because Java is missing or old: what is wrong, in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.spark.java import complaint, version_of

PROGRAM = "from cairnmq.spark import session; session()"


def java_home(place: Path, says: str) -> Path:
    program = place / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n[ $1 = -version ]\n")  # for anything else it is too old
    program.chmod(0o755)
    return place


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
        ("command not found", None),
    ],
)
def test_versions(text: str, version: int | None) -> None:
    assert version_of(text) == version


def test_java_is_looked_for_where_spark_does(tmp_path: Path) -> None:
    old, new = java_home(tmp_path / "old", 'version "11.0.2"'), java_home(tmp_path / "new", 'version "17.0.1"')
    assert complaint({"JAVA_HOME": str(new)}) is None
    assert complaint({"PATH": str(new / "bin")}) is None
    assert complaint({"PATH": f"{tmp_path}:{old / 'bin'}:{new / 'bin'}"}) == (
        f"{old}/bin/java is Java 11: Spark needs Java 17 or newer; "
        "install it (Debian: default-jre-headless) or set JAVA_HOME to its directory"
    )
    said = complaint({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert said is not None and "is Java 11" in said, "JAVA_HOME goes before the PATH"


def test_there_is_none(tmp_path: Path) -> None:
    for environment, sentence in (
        ({"PATH": str(tmp_path)}, "no Java found on the PATH, and JAVA_HOME is not set"),
        ({}, "no Java found on the PATH"),
        ({"JAVA_HOME": "/nowhere", "PATH": "/usr/bin"}, "no Java found in JAVA_HOME=/nowhere"),
    ):
        said = complaint(environment)
        assert said is not None and said.startswith(sentence)
    mute = java_home(tmp_path, "17")
    said = complaint({"JAVA_HOME": str(mute)})
    assert said is not None and "does not report its version: Spark needs" in said


def told(home: Path) -> str:
    """The last line of what a user sees."""
    environment = {**os.environ, "JAVA_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_java_is_the_trouble(tmp_path: Path) -> None:
    error = "cairnmq.spark.errors.SparkSourceError: "
    missing = tmp_path / "missing"
    assert told(missing).startswith(f"{error}no Java found in JAVA_HOME={missing}: Spark needs Java 17 or newer")
    old = java_home(tmp_path / "old", 'openjdk version "11.0.2"')
    assert told(old).startswith(f"{error}{old}/bin/java is Java 11: Spark needs Java 17 or newer")
