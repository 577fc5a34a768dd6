"""Java's properties format, as far as Kafka's server.properties use it: names, texts and line numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(?P<mark>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, name and text of every property, in order."""
    for number, line in _logical_lines(text):
        found = _SEPARATOR.search(line)
        if found is None:
            yield number, _unescaped(line), ""
        else:
            yield number, _unescaped(line[: found.start("mark")]), _unescaped(line[found.end() :])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where they end with an odd number of backslashes; comments and blank lines left out."""
    joined, begun = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not begun:
            if not line or line[0] in "#!":
                continue
            begun = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined, begun = "", 0
    if begun:
        yield begun, joined


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROL.get(m[2], m[2]), text)
