"""House rules with exceptions of today: what each rule finds, as place -> size. `exceptions.toml` holds the same."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidy import code_size, prose, threads
from tidy.imports import entry_points, imported, imports_of, named_once, texts, unused, users
from tidy.tree import GENERATED, ROOT, SOURCE, committed, modules, name_of

FUNCTION_LINES, FUNCTION_BRANCHES = 60, 15
CLASS_METHODS, CLASS_ATTRIBUTES = 25, 20
OPERATING_SYSTEM = {"os", "fcntl", "ctypes", "shutil", "tempfile", "glob", "pathlib", "subprocess", "io"}
MACHINE = {"time", "threading", "concurrent", "secrets", "uuid", "random"}
MACHINE_MODULES = {
    "broker/clocks.py": "the real clocks",
    "broker/machine.py": "the real Runtime",
    "broker/runtime.py": "the type of an executor",
    "broker/logs.py": "the time of a log line, which the logging module has noted",
}
DISK = SOURCE / "storage" / "files" / "disk.py"

Found = Mapping[str, int]


class Rule(NamedTuple):
    """`find` measures the repository as it is. A rule without sizes counts 1 for each place."""

    name: str
    says: str
    find: Callable[[], Found]


@functools.cache
def _trees() -> Mapping[str, ast.Module]:
    return {name_of(module): ast.parse(module.read_text()) for module in modules() if module not in GENERATED}


def _over(limit: int, sizes: Iterator[tuple[str, int]]) -> Found:
    return {place: size for place, size in sizes if size > limit}


def _functions(measure: Callable[[code_size.Function], int]) -> Iterator[tuple[str, int]]:
    for module, tree in _trees().items():
        for name, function in code_size.functions(tree):
            yield f"{module}:{name}", measure(function)


def _classes(measure: Callable[[ast.ClassDef], int]) -> Iterator[tuple[str, int]]:
    for module, tree in _trees().items():
        for cls in code_size.classes(tree):
            yield f"{module}:{cls.name}", measure(cls)


def pages() -> list[Path]:
    """All but records of the past, which nobody rewrites."""
    past = ROOT / "docs" / "history"
    return [page for page in committed() if page.suffix == ".md" and not page.is_relative_to(past)]


def _pages(measure: Callable[[str], list[str]]) -> Iterator[tuple[str, int]]:
    for page in pages():
        yield page.relative_to(ROOT).as_posix(), len(measure(page.read_text()))


def needs_test(module: str, tree: ast.Module) -> bool:
    """Tables and lists of imports need no unit test of their own; the simulator is a test, tests/sim tests it."""
    if module.endswith("__init__.py") or module.startswith("testing/"):
        return False
    return any(isinstance(node, code_size.Function) for node in ast.walk(tree))


def mirror_of(module: str) -> str:
    """`broker/net/listener.py` -> `broker/net/test_listener.py`, below tests/unit."""
    directory, _, file = module.rpartition("/")
    return f"{directory}/test_{file}".lstrip("/")


def _without_test() -> Found:
    unit = ROOT / "tests" / "unit"
    return {
        module: 1
        for module, tree in _trees().items()
        if needs_test(module, tree) and not (unit / mirror_of(module)).exists()
    }


def _without_module() -> Found:
    unit = ROOT / "tests" / "unit"
    known = {mirror_of(name_of(module)) for module in modules()}
    known |= {mirror_of(f"bench/{path.name}") for path in (ROOT / "bench").glob("*.py")}
    tests = (path.relative_to(unit).as_posix() for path in unit.rglob("test_*.py"))
    return {test: 1 for test in tests if test not in known}


def touches_system(path: Path) -> bool:
    """Whether it knows the operating system by itself, or opens a file."""
    tree = ast.parse(path.read_text())
    opens = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "open" for node in ast.walk(tree))
    return opens or not OPERATING_SYSTEM.isdisjoint(name.partition(".")[0] for name in imports_of(path))


def _beside_disk() -> Found:
    storage = (module for module in modules() if module.is_relative_to(SOURCE / "storage") and module != DISK)
    return {name_of(module): 1 for module in storage if touches_system(module)}


def knows_machine(tree: ast.Module) -> bool:
    """Whether it has a clock, a thread or a random number that it was not handed."""
    return not MACHINE.isdisjoint(name.partition(".")[0] for name in imported(tree))


def _beside_runtime() -> Found:
    return {
        module: 1
        for module, tree in _trees().items()
        if module.startswith("broker/") and module not in MACHINE_MODULES and knows_machine(tree)
    }


def _dead() -> Found:
    return {name: 1 for name in unused(texts(), entry_points())}


def _unused_names() -> Found:
    """The simulator's are for tests, and a generated message may be one that is not served."""
    generated = {name_of(module) for module in GENERATED}
    return {
        place: 1
        for place in named_once(texts(), users())
        if not place.startswith("testing/") and place.partition(":")[0] not in generated
    }


def threads_section() -> str:
    page = (ROOT / "docs" / "architecture.md").read_text()
    return page.partition("## Threads and processes")[2].partition("\n## ")[0]


def _undocumented_threads() -> Found:
    table = threads_section()
    return {
        f"{module}:{name or 'no name'}": 1
        for module, tree in _trees().items()
        if not module.startswith("testing/") and module != "broker/machine.py"  # named by whoever asks for them
        for name in threads.started(tree)
        if not name or f"`{name}`" not in table
    }


RULES = [
    Rule("function_lines", f"a function has at most {FUNCTION_LINES} lines",
         lambda: _over(FUNCTION_LINES, _functions(code_size.lines_of))),
    Rule("function_branches", f"a function has at most {FUNCTION_BRANCHES} branches",
         lambda: _over(FUNCTION_BRANCHES, _functions(code_size.branches_of))),
    Rule("class_methods", f"a class has at most {CLASS_METHODS} methods",
         lambda: _over(CLASS_METHODS, _classes(code_size.methods_of))),
    Rule("class_attributes", f"a class has at most {CLASS_ATTRIBUTES} attributes",
         lambda: _over(CLASS_ATTRIBUTES, _classes(code_size.attributes_of))),
    Rule("modules_without_unit_test", "a module with code has a test file of its name in tests/unit", _without_test),
    Rule("unit_tests_without_module", "a file of tests/unit has the name of a module", _without_module),
    Rule("system_calls_beside_disk", "storage reaches the operating system only through files/disk.py", _beside_disk),
    Rule("machine_beside_runtime", "a broker has clocks, threads and random numbers from its Runtime alone",
         _beside_runtime),
    Rule("dead_modules", "a module is imported by another one, or is an entry point", _dead),
    Rule("unused_names", "a function, class or constant is used by the product", _unused_names),
    Rule("undocumented_threads", "a thread has a name, and a row in docs/architecture.md", _undocumented_threads),
    Rule("long_sentences", f"a sentence has at most {prose.WORDS_MAX} words",
         lambda: _over(0, _pages(prose.long_sentences))),
    Rule("long_cells", f"a table cell has at most {prose.CELL_MAX} characters",
         lambda: _over(0, _pages(prose.long_cells))),
]  # fmt: skip
