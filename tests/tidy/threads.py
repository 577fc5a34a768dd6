"""Threads that the source starts, by name; docs/architecture.md has a table of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_STARTERS = {"Thread": 2, "ThreadPoolExecutor": 1, "executor": 0}
"""Class -> the place of the name among its arguments."""
NAMES = ("name", "thread_name_prefix")
DEFAULT_POOL = "asyncio.to_thread"
TIMER = "threading.Timer"


def started(tree: ast.AST) -> Iterator[str]:
    """`journal-N-write` of `f"journal-{number}-write"`; the default pool of asyncio; "" if it has no name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        if called == "to_thread" or (called == "run_in_executor" and ast.unparse(node.args[0]) == "None"):
            yield DEFAULT_POOL
        elif called == "Timer":
            yield TIMER  # it takes no name
        elif called in _STARTERS:
            yield _name(node, _STARTERS[called])


def _name(call: ast.Call, place: int) -> str:
    given = [word.value for word in call.keywords if word.arg in NAMES]
    if not given and len(call.args) > place:
        given = [call.args[place]]
    for value in given:
        if isinstance(value, ast.Constant):
            return str(value.value)
        if isinstance(value, ast.JoinedStr):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in value.values)
    return ""
