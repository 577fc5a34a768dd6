"""What `make dist` builds: installed into an empty environment it passes the first test of docs/testing-your-app.md."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import cairnmq
from pages.page import ROOT, blocks

pytestmark = pytest.mark.long

VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
PATIENCE = 1200


class Dist(NamedTuple):
    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, clone: Callable[[str], Path]) -> Dist:
    """The sdist, and the wheel that is built from it."""
    target = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", str(target), str(clone("build"))], target)
    (wheel,), (source,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Dist(wheel, source)


def run(command: list[str], directory: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def find_interpreter(version: str) -> str | None:
    """On PATH, or among those of pyenv, whose commands on PATH work only for versions that were chosen."""
    name = f"python{version}"
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/{name}"))
    for path in filter(None, [shutil.which(name), *map(str, kept)]):
        if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, timeout=60).returncode == 0:
            return path
    return None


def modules_of(names: list[str], root: str) -> set[str]:
    return {name.removeprefix(root) for name in names if name.startswith(root) and name.endswith(".py")}


def test_wheel_and_sdist_have_the_package_and_not_the_simulator(dist: Dist) -> None:
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    expected = {name for name in expected if not name.startswith("cairnmq/testing/")}
    with zipfile.ZipFile(dist.wheel) as wheel:
        packed = wheel.namelist()
        (metadata,) = (wheel.read(name).decode() for name in packed if name.endswith("METADATA"))
    with tarfile.open(dist.source) as sdist:
        unpacked = sdist.getnames()
    assert modules_of(packed, "") == expected
    assert modules_of(unpacked, f"{dist.source.name.removesuffix('.tar.gz')}/src/") == expected
    kernels = {path.stem for path in source.rglob("_*.pyx")}
    assert {Path(name).name.partition(".")[0] for name in packed if name.endswith(".so")} == kernels
    assert {"cairnmq/py.typed", "pyspark_cairnmq/py.typed"} <= set(packed)
    described = email.message_from_string(metadata)
    assert {f"Programming Language :: Python :: {version}" for version in VERSIONS} <= set(
        described.get_all("Classifier", [])
    )
    assert described["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_test_passes_in_an_empty_environment(dist: Dist, tmp_path: Path, version: str) -> None:
    """The interpreter of this environment gets the wheel, others build their own from the sdist."""
    ours = version == f"{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = sys.executable if ours else find_interpreter(version)
    if interpreter is None:
        pytest.skip(f"python{version} is not on this machine, so CairnMQ is untested with it here")
    for block in blocks("docs/testing-your-app.md"):
        if block.file == "test_orders.py":
            (tmp_path / block.file).write_text(block.text)
    started = time.monotonic()
    run([interpreter, "-m", "venv", str(tmp_path / "env")], tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    package = str(dist.wheel if ours else dist.source)
    run([python, "-m", "pip", "install", "--quiet", package, "pytest", "confluent-kafka"], tmp_path)
    installed = time.monotonic()
    said = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"], tmp_path)
    tested = time.monotonic()
    assert re.search(r"^1 passed", said, re.MULTILINE), said
    print(f"Python {version}: installed in {installed - started:.1f} s, tested in {tested - installed:.1f} s")
    assert f"cairn {cairnmq.__version__}" in run([python, "-m", "cairnmq", "--version"], tmp_path)
