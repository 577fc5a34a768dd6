"""docs/benchmarks.md: prose by hand, tables between markers. Only the rows that were run are written."""

from __future__ import annotations

import re


def section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)


def put(page: str, name: str, text: str) -> str:
    """The page with the row's part replaced; a row without markers is a mistake of whoever added it."""
    changed, count = section(name).subn(lambda found: f"{found[1]}{text.strip()}\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"docs/benchmarks.md has {count} places for row {name}, not one")
    return changed


def rows_of(page: str) -> list[str]:
    return re.findall(r"<!-- bench:([\w-]+) -->", page)
