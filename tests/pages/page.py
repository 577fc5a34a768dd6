"""A page of ours as its reader meets it: blocks of commands, programs and files, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """`sh` is typed into a terminal, `python` is a program, `text` is only looked at, all else is a file."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name that its first line gives it: `# test_orders.py`."""
        named = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return named[1] if named else None

    @property
    def installs(self) -> bool:
        return "pip install" in self.text or "make dist" in self.text

    @property
    def serves(self) -> bool:
        """Its last command is a broker, which stays in that terminal."""
        last = self.text.strip().splitlines()[-1]
        return last.startswith(("cairn serve", "make run")) and "--help" not in last


def blocks(page: str) -> list[Block]:
    return [Block(language, text) for language, text in _BLOCK.findall((ROOT / page).read_text())]
