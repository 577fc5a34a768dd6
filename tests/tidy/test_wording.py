"""Log lines and errors are plain English: none of the words of the old house style, except where they are listed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidy.tree import GENERATED, SOURCE, modules

FILE = Path(__file__).with_name("wording.toml")
BANNED = re.compile(
    r"\b(who|whoever|nobody|somebody|is told|are told|go(es)? on|went on|goes by|answer(s|ed|ing)?|mend(s|ed|ing)?|"
    r"doubt\w*|shelf|tray|strays?|leftovers?|left over|upkeep|spoiled|begun|for ever|behind|ends? early|"
    r"do(es)? not read back|cut short)\b",
    re.IGNORECASE,
)


def said(module: Path) -> Iterator[tuple[int, str]]:
    """Texts of calls to a log, of exceptions and refusals: what a user or an operator reads."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and _speaks(node.func):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.lineno, each.value


def _speaks(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        owner = called.value
        return isinstance(owner, ast.Name) and owner.id == "log"
    if not isinstance(called, ast.Name):
        return False
    return called.id in ("note", "Finding", "Refusal", "Metric") or called.id.endswith(("Error", "Fault", "Corrupt"))


def found() -> dict[str, int]:
    counts: dict[str, int] = {}
    for module in modules():
        if module not in GENERATED and "testing" not in module.parts:
            count = sum(len(BANNED.findall(text)) for _, text in said(module))
            if count:
                counts[module.relative_to(SOURCE).as_posix()] = count
    return counts


def test_texts_are_plain_english() -> None:
    """The list may only shrink: lower a number when its module has fewer banned words."""
    listed = tomllib.loads(FILE.read_text())
    assert {place: count for place, count in found().items() if count > listed.get(place, 0)} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [("journal 0: sync failed", 0), ("what is in doubt is mended", 2), ("the broker goes on behind it", 2)],
)
def test_the_rule_finds_words(text: str, count: int) -> None:
    assert len(BANNED.findall(text)) == count


def test_the_rule_finds_texts(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('log.error("one %s", "two")\nraise ConfigError(f"three {name}")\nprint("four")\n')
    assert [text for _, text in said(module)] == ["one %s", "two", "three "]
