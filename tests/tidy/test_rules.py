"""The rules that have exceptions, and a planted offence for each: a rule that finds nothing would hold nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidy import code_size, prose, threads
from tidy.exceptions import FILE, new, over, recorded, written
from tidy.imports import named_once, unused
from tidy.rules import MACHINE_MODULES, RULES, Rule, knows_machine, mirror_of, needs_test, touches_system
from tidy.tree import ROOT

HELP = "run PYTHONPATH=tests python -m tidy.exceptions --write, and say why in the commit"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule(rule: Rule) -> None:
    found, known = rule.find(), recorded(FILE.read_text()).get(rule.name, {})
    assert list(new(found, known)) == [], f"{rule.says}; if it must be: {HELP}"
    assert list(over(found, known)) == [], f"the list of exceptions can shrink: {HELP}"


def test_exceptions_are_of_rules_that_exist() -> None:
    assert set(recorded(FILE.read_text())) <= {rule.name for rule in RULES}


def test_new_larger_smaller_and_needless_exceptions() -> None:
    found = {"new": 61, "larger": 80, "same": 70, "smaller": 65}
    known = {"larger": 79, "same": 70, "smaller": 66, "needless": 90}
    assert list(new(found, known)) == ["larger: 80, was 79", "new: 61, was none"]
    assert list(over(found, known)) == ["needless: none, was 90", "smaller: 65, was 66"]


def test_what_is_written_reads_back() -> None:
    found = {"function_lines": {"a.py:C.f": 61}, "long_cells": {"docs/a.md": 2}}
    assert recorded(written(found)) == found


def tree(text: str) -> ast.Module:
    return ast.parse(text)


def test_functions_are_measured() -> None:
    long = 'class C:\n  def f(self):\n    """Not\n    counted."""\n' + "    x = 1\n" * 60
    ((name, function),) = code_size.functions(tree(long))
    assert (name, code_size.lines_of(function)) == ("C.f", 61)


def test_branches_are_counted() -> None:
    text = """
def f(a, b):
    assert a or b
    if a and b or not a:
        return [x for x in a if x]
    while b:
        try:
            b = 1 if a else 2
        except OSError:
            pass
    def inner():
        if a:
            pass
    match a:
        case 1:
            pass
"""
    sizes = {name: code_size.branches_of(function) for name, function in code_size.functions(tree(text))}
    assert sizes == {"f": 9, "f.inner": 1}


def test_classes_are_measured() -> None:
    text = """
class C:
    field: int
    def f(self): self.a = self.b = 1
    async def g(self): self.a += self.c
"""
    (cls,) = code_size.classes(tree(text))
    assert (code_size.methods_of(cls), code_size.attributes_of(cls)) == (2, 3)


def test_a_module_without_a_test_is_found() -> None:
    assert mirror_of("storage/packs/pack.py") == "storage/packs/test_pack.py"
    assert mirror_of("types.py") == "test_types.py"
    assert needs_test("types.py", tree("def f(): pass"))
    assert not needs_test("storage/api/start.py", tree("from a import b\nTABLE = {}"))
    assert not needs_test("testing/oracle.py", tree("def f(): pass"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os.path\n", True),
        ("open('x')\n", True),
        ("from pathlib import Path\n", True),
        ("import osmium\n", False),
    ],
)
def test_system_calls_are_found(tmp_path: Path, text: str, found: bool) -> None:
    module = tmp_path / "module.py"
    module.write_text(text)
    assert touches_system(module) == found


@pytest.mark.parametrize("text", ["import time\n", "def f():\n    from concurrent.futures import Executor\n"])
def test_a_broker_that_goes_past_its_runtime_is_found(text: str) -> None:
    assert knows_machine(tree(text))
    assert not knows_machine(tree("from cairnmq.broker.runtime import Executor\nimport datetime\n"))


def test_exceptions_of_the_runtime_are_needed() -> None:
    assert all(knows_machine(tree((ROOT / "src" / "cairnmq" / name).read_text())) for name in MACHINE_MODULES)


def test_dead_modules_are_found() -> None:
    texts = {
        "used.py": "import cairnmq.dead_too",
        "user.py": "from cairnmq import used",
        "started.py": "",
        "starter.py": 'COMMAND = ["-m", "cairnmq.started"]',
        "dead.py": '"""cairnmq.dead is named by itself."""\nimport cairnmq.dead',
        "entry.py": "",
    }
    assert unused(texts, "cairn = cairnmq.entry:main") == ["user.py", "starter.py", "dead.py"]


def test_unused_names_are_found() -> None:
    texts = {
        "a.py": "LIMIT, _LEFT = 1, 2\nSIZE = 3\nclass C:\n    def run(self): return LIMIT\n    def stop(self): ...\n",
        "b.py": "def start(): C().run()\n",
    }
    assert named_once(texts, "from a import SIZE") == ["a.py:stop", "b.py:start"]


def test_threads_are_found_by_name() -> None:
    text = """
ThreadPoolExecutor(1, f"journal-{n}-write")
ThreadPoolExecutor(1, thread_name_prefix="metadata")
threading.Thread(None, run, "third")
threading.Thread(target=run)
threading.Timer(1, stop)
asyncio.to_thread(run)
loop.run_in_executor(None, run)
loop.run_in_executor(pool, run)
runtime.executor("cold-read", 4)
"""
    assert list(threads.started(tree(text))) == [
        "journal-N-write", "metadata", "third", "", threads.TIMER, threads.DEFAULT_POOL, threads.DEFAULT_POOL,
        "cold-read",
    ]  # fmt: skip


def test_sentences_are_counted() -> None:
    long = "word " * 30 + "end."
    page = f"# {long}\n\n{long} Short one.\n- {long}\n  `a.b` is short.\n\n```sh\n{long}\n```\n| {long} |\n|---|\n"
    assert len(prose.long_sentences(page)) == 2
    assert prose.long_sentences("word " * 29 + "[end](https://a.b/c?d e f).") == []


def test_cells_are_counted() -> None:
    page = f"| a | {'b' * 201} |\n|---|---|\n| [{'c' * 200}](target) | d |\n"
    assert prose.long_cells(page) == ["b" * 201]
    assert [cell for cell in prose.cells("| a \\| b | c |")] == ["a \\| b", "c"]


def test_the_list_is_where_the_documents_say() -> None:
    assert "python -m tidy.exceptions" in (ROOT / "docs" / "testing.md").read_text()
