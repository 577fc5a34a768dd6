"""The repository as the house rules see it: its files, its modules, and the tests that pytest would collect."""

from __future__ import annotations

import functools
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "cairnmq"
GENERATED = {SOURCE / "wire" / "messages.py"}


@functools.cache
def committed() -> tuple[Path, ...]:
    """Files under version control, and new ones that are not ignored: what a commit would hold."""
    line = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(line, capture_output=True, check=True).stdout.decode().split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file())


def text_of(path: Path) -> str | None:
    """The file's text, None for anything else."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


@functools.cache
def modules() -> tuple[Path, ...]:
    """Every module of the package; empty __init__ files say nothing and count for nothing."""
    return tuple(path for path in sorted(SOURCE.rglob("*.py")) if path.stat().st_size)


def name_of(module: Path) -> str:
    """`storage/journal/journal.py` as the documents write it."""
    return module.relative_to(SOURCE).as_posix()


@functools.cache
def collected() -> frozenset[str]:
    """Node ids of every test, with parameters."""
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"tests do not collect:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
    return frozenset(line for line in done.stdout.splitlines() if line.startswith("tests/"))


@functools.cache
def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
