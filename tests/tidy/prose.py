"""The length of sentences and table cells in a Markdown page, as a reader sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator

WORDS_MAX = 30
CELL_MAX = 200

_NOT_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|<[^>]+>", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[\"')*_`]*\s+(?=[\"'(*_`]*[A-Z0-9`])")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|no|nos)\.", re.IGNORECASE)


def long_sentences(page: str) -> list[str]:
    return [sentence for sentence in sentences(page) if len(sentence.split()) > WORDS_MAX]


def long_cells(page: str) -> list[str]:
    return [cell for cell in cells(page) if len(cell) > CELL_MAX]


def sentences(page: str) -> Iterator[str]:
    """Those of paragraphs and list items; tables, headings and blocks have none."""
    for paragraph in _paragraphs(page):
        yield from _END.split(_ABBREVIATION.sub(r"\1", paragraph))


def _paragraphs(page: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*_seen(page).splitlines(), ""]:
        apart = not line.strip() or line.startswith(("|", "#"))
        if lines and (apart or _ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if not apart:
            lines.append(_ITEM.sub("", line).strip())


def cells(page: str) -> Iterator[str]:
    for line in _seen(page).splitlines():
        if line.startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def _seen(page: str) -> str:
    return _LINK.sub(r"\1", _NOT_PROSE.sub("", page))
