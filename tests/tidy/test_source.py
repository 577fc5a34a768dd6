"""House rules for source files: size, names, what they may not say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tidy.tree import GENERATED, ROOT, SOURCE, committed, modules, name_of, text_of

LINES_MAX = 600
BANNED_MODULES = re.compile(r"^(utils?|helpers?|common|misc|managers?|base|impl)$|_(utils?|helpers?|manager|impl)$")
BANNED_CLASSES = re.compile(r"^(Base|Abstract)[A-Z]|(Manager|Helper|Helpers|Util|Utils|Impl)$")


@pytest.mark.parametrize("module", modules(), ids=name_of)
def test_module(module: Path) -> None:
    text = module.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says in its first line what it is for"
    if module not in GENERATED:
        assert len(text.splitlines()) <= LINES_MAX, f"more than {LINES_MAX} lines: is it still one idea?"
    assert not BANNED_MODULES.search(module.stem), "name it after a noun of the domain"
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if BANNED_CLASSES.search(name)] == []


def test_kernels_have_a_pure_twin() -> None:
    kernels = SOURCE.rglob("_*.pyx")
    alone = [str(kernel) for kernel in kernels if not kernel.with_name(f"{kernel.stem.removeprefix('_')}.py").exists()]
    assert alone == []


def test_kernels_use_storage_through_its_front() -> None:
    """import-linter holds modules to this, and does not see kernels."""
    inside = re.compile(r"cairnmq\.storage\.(?!api\.)")
    kernels = [kernel for kernel in SOURCE.rglob("_*.pyx") if "storage" not in kernel.relative_to(SOURCE).parts]
    assert [str(kernel) for kernel in kernels if inside.search(kernel.read_text())] == []


INSIDE_OF_STORE = re.compile(r"\bstore\.(engine|loops)\b|\bpath\.journal\b")


def reaches_through(module: Path) -> list[str]:
    return INSIDE_OF_STORE.findall(module.read_text())


def test_only_the_storage_loop_reaches_through_the_store() -> None:
    """Handlers, HTTP and coordination use what `Store` offers. The shells of replicas drive journals, as it does."""
    drivers = ("storage_loop", "cluster")
    outside = [
        module
        for module in modules()
        if name_of(module).startswith("broker/") and not any(room in module.parts for room in drivers)
    ]
    assert [name_of(module) for module in outside if reaches_through(module)] == []


def test_reaching_through_is_found(tmp_path: Path) -> None:
    module = tmp_path / "handler.py"
    module.write_text(
        "ctx.store.engine.path_of(queue)\npath.journal.staged_end\nstorage.engine.keyed\nstore.loops[0]\n"
    )
    assert len(reaches_through(module)) == 3


def test_nothing_is_mocked() -> None:
    """Our own code is tested with fakes that are code too (cairnmq.testing)."""
    pattern = re.compile(r"^\s*(from|import) unittest(\.mock| import mock)", re.MULTILINE)
    tests = [path for path in committed() if path.suffix == ".py" and path != Path(__file__).resolve()]
    assert [str(path.relative_to(ROOT)) for path in tests if pattern.search(path.read_text())] == []


def outside_names() -> re.Pattern[str]:
    """Spelled in pieces, so that this file does not break its own rule."""
    places = [r"\.\." + "/shared", "/" + "work/", "/" + "root/"]
    hosts = ["pypi" + r"\.org", "pythonhosted" + r"\.", r"registry\." + "npmjs", r"repo1?\." + "maven"]
    hosts += ["deb" + r"\.debian", "proxy" + r"\.golang"]
    return re.compile("|".join(places + hosts))


def test_repository_stands_alone() -> None:
    """No path outside the repository and no package registry's host in any committed file."""
    pattern = outside_names()
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in committed()
        for number, line in enumerate((text_of(path) or "").splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert found == []


def test_nothing_heavy_is_committed() -> None:
    assert [str(path.relative_to(ROOT)) for path in committed() if path.stat().st_size > 1 << 20] == []
