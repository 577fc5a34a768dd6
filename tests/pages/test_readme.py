"""The README is true: every block does what it is printed for, and its figures are those of docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pages.page import ROOT, Block, blocks
from pages.visitor import Visitor
from programs import require_program

README = "README.md"
GREETINGS = ["hello", "hello from Python"]


def is_spark(block: Block) -> bool:
    return "spark" in block.text


def from_source(block: Block) -> bool:
    return block.text.startswith("make")


def test_its_blocks_without_installing_anything(visitor: Visitor) -> None:
    """The cheap share: what is installed here already counts as installed."""
    activate = visitor.directory / "env" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    said = []
    for block in blocks(README):
        if not is_spark(block) and not from_source(block):
            text = re.sub(r"^pip install .*\n", "", block.text, flags=re.MULTILINE)
            if "python3 -m venv" not in text and text:
                said.append(visitor.do(block._replace(text=text)))
    assert [line for each in said for line in each.splitlines() if line in GREETINGS] == ["hello", *GREETINGS]
    assert "1 passed" in said[-1]


@pytest.mark.long
def test_every_block_in_a_fresh_environment(clone: Callable[[str], Path], make_visitor: Callable[..., Visitor]) -> None:
    require_program("java")
    visitor = make_visitor(clone("readme"))
    said = ""
    for block in blocks(README):
        if not from_source(block):
            said += visitor.do(block)
    assert [line for line in said.splitlines() if line in GREETINGS] == ["hello", *GREETINGS]
    assert "1 passed" in said
    shown = re.findall(r"^\|\s+(\d+)\|\s+(\d+)\|\s*(.+?)\|$", said, re.MULTILINE)
    assert shown == [("0", str(offset), text) for offset, text in enumerate(GREETINGS)]


@pytest.mark.long
def test_from_a_bare_clone(clone: Callable[[str], Path], make_visitor: Callable[..., Visitor]) -> None:
    """`make run`, and a first message. What it downloads it gets before, because its network is only loopback."""
    visitor = make_visitor(clone("source"))
    told = visitor.run("time make .venv/.stamp-run", inside=False)
    print(told)
    assert "compiling" in told and "downloading msgspec" in told, "it says what it is doing"
    (block,) = [block for block in blocks(README) if from_source(block)]
    visitor.do(block)
    assert "compiling" not in visitor.log(), "a second call installs nothing"
    (first,) = [block for block in blocks(README) if "cairn produce" in block.text]
    visitor.run("mkdir -p env && ln -s ../.venv/bin env/bin")
    assert visitor.do(first).splitlines()[-1:] == ["hello"]


def rows_of(page: str) -> dict[str, list[str]]:
    """First cell -> the others, of every table."""
    lines = [line.strip("|\n").split("|") for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    rows: dict[str, list[str]] = {}
    for first, *others in lines:
        rows.setdefault(first.strip(), [cell.strip() for cell in others])
    return rows


def test_figures_are_those_that_were_measured() -> None:
    text = (ROOT / README).read_text().partition("## Figures")[2].partition("\n## ")[0]
    figures = [line.strip("|").split("|") for line in text.splitlines() if re.match(r"\| [^m-].*\d", line)]
    assert len(figures) >= 9
    measured = rows_of("docs/benchmarks.md")
    wrong = []
    for goal, ours, kafka in figures:
        told_ours, told_kafka, result, *_ = measured[goal.strip()]
        allowed = {told_ours, result.partition(" ")[0].strip("*")} - {""}
        if ours.split()[0] not in allowed or kafka.split()[0] != told_kafka:
            wrong.append((goal.strip(), ours, kafka, measured[goal.strip()]))
    assert wrong == []
