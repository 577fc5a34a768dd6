"""Who uses which module: imports, kernels, and modules that are started or loaded by their name."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from pathlib import Path

from tidy.tree import ROOT, SOURCE, modules, name_of

_KERNEL_IMPORT = re.compile(r"^\s*(?:from|c?import)\s+(cairnmq[\w.]*)", re.MULTILINE)


def dotted(name: str) -> str:
    """`broker/server.py` -> `cairnmq.broker.server`."""
    return "cairnmq." + name.removesuffix(".py").replace("/", ".")


def imported(tree: ast.AST) -> set[str]:
    """Every name that a module may load: `from a import b` is both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def unused(present: Mapping[str, str], others: str = "") -> list[str]:
    """Modules of `present` (name -> text) that nobody else imports or names. `others`: texts of entry points."""
    used: dict[str, set[str]] = {name: _named(text) for name, text in present.items()}
    outside = set(re.findall(r"cairnmq(?:\.\w+)+", others))
    return [
        name
        for name in present
        if dotted(name) not in outside and not any(dotted(name) in used[each] for each in present if each != name)
    ]


def _named(text: str) -> set[str]:
    tree = ast.parse(text)
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return imported(tree) | {each for each in texts if re.fullmatch(r"cairnmq[\w.]+", each)}


def named_once(present: Mapping[str, str], others: str = "") -> list[str]:
    """Functions, classes and constants of modules that no text names but where they are made."""
    count = Counter(re.findall(r"\w+", "\n".join([*present.values(), others])))
    return [
        f"{module}:{name}"
        for module, text in present.items()
        for name in _made(ast.parse(text))
        if count[name] == 1 and not name.startswith("__")
    ]


def _made(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


@functools.cache
def texts() -> Mapping[str, str]:
    return {name_of(module): module.read_text() for module in modules() if module.name != "__init__.py"}


def entry_points() -> str:
    """What starts or loads modules from outside of the package, as text."""
    return "\n".join([*_outside(), *_commands()])


def users() -> str:
    """Texts beside the modules that may use their names."""
    beside = [*SOURCE.rglob("__init__.py"), *SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxi")]
    for directory in ("src/pyspark_cairnmq", "bench", "tools"):
        beside += (ROOT / directory).rglob("*.py")
    return "\n".join(path.read_text() for path in beside)


def _outside() -> Iterator[str]:
    yield from (path.read_text() for path in (ROOT / "pyproject.toml", ROOT / "Makefile"))
    yield "cairnmq.__main__"  # `python -m cairnmq`
    yield from (path.read_text() for path in SOURCE.rglob("__init__.py"))
    yield from (path.read_text() for path in (ROOT / "src" / "pyspark_cairnmq").rglob("*.py"))
    for kernel in SOURCE.rglob("*.pyx"):
        yield "\n".join(_KERNEL_IMPORT.findall(kernel.read_text()))
    # The simulator is for tests, and only they import all of it.
    for test in (ROOT / "tests").rglob("*.py"):
        yield "\n".join(re.findall(r"cairnmq\.testing(?:\.\w+)+", test.read_text()))


def _commands() -> Iterator[str]:
    """`cairn NAME` loads `cairnmq.cli.NAME`."""
    for node in ast.parse((SOURCE / "cli" / "main.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS":
            for name in ast.literal_eval(node.value):
                yield f"cairnmq.cli.{name}_" if iskeyword(name) else f"cairnmq.cli.{name}"


def imports_of(path: Path) -> set[str]:
    return imported(ast.parse(path.read_text()))
