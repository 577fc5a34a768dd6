"""Today's exceptions to the rules, in exceptions.toml. They may only become fewer and smaller.

`PYTHONPATH=tests python -m tidy.exceptions` shows what differs; with `--write` it writes what is found now. A new or
larger exception is shown with a plus: it needs a reason in the commit.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidy.rules import RULES, Found, Rule

FILE = Path(__file__).with_name("exceptions.toml")
HEAD = (
    "# Today's exceptions to the rules of tests/tidy/rules.py. The lists may only shrink.\n"
    "# Written by: PYTHONPATH=tests python -m tidy.exceptions --write\n"
)


def recorded(text: str) -> dict[str, dict[str, int]]:
    return tomllib.loads(text)


def written(found: Mapping[str, Found]) -> str:
    tables = []
    for rule in RULES:
        if found.get(rule.name):
            rows = (f'"{place}" = {size}\n' for place, size in sorted(found[rule.name].items()))
            tables.append(f"\n# Rule: {rule.says}.\n[{rule.name}]\n{''.join(rows)}")
    return HEAD + "".join(tables)


def new(found: Found, known: Found) -> Iterator[str]:
    """Exceptions that were not there, or are larger now."""
    for place, size in sorted(found.items()):
        if size > known.get(place, 0):
            yield f"{place}: {size}, was {known.get(place, 'none')}"


def over(found: Found, known: Found) -> Iterator[str]:
    """Exceptions that are no longer needed, or could be smaller."""
    for place, size in sorted(known.items()):
        if size > found.get(place, 0):
            yield f"{place}: {found.get(place, 'none')}, was {size}"


def _show(rule: Rule, found: Found, known: Found) -> Iterator[str]:
    yield from (f"+ {rule.name}: {line}" for line in new(found, known))
    yield from (f"- {rule.name}: {line}" for line in over(found, known))


def main() -> int:
    parser = argparse.ArgumentParser(description="Exceptions to the house rules: what differs from the list.")
    parser.add_argument("--write", action="store_true", help="write the list as it is now")
    chosen = parser.parse_args()
    known = recorded(FILE.read_text()) if FILE.exists() else {}
    found = {rule.name: rule.find() for rule in RULES}
    lines = [line for rule in RULES for line in _show(rule, found[rule.name], known.get(rule.name, {}))]
    print(*lines, sep="\n", end="\n" if lines else "")
    if chosen.write:
        FILE.write_text(written(found))
    return int(bool(lines) and not chosen.write)


if __name__ == "__main__":
    sys.exit(main())
