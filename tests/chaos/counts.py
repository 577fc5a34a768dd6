"""Counts of finished campaigns for docs/reliability-results.md: `python -m chaos.counts TALLY... --note TEXT`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from damage.table import damage_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability-results.md"


def marks(name: str) -> tuple[str, str]:
    """What stands before and behind a table of the page."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def table(counts: Counter[str]) -> str:
    rows = [f"| {name} | {count:,} |" for name, count in sorted(counts.items())]
    return "\n".join(["| what | how often |", "|---|---|", *rows]) + "\n"


TABLES: dict[str, Callable[[Counter[str]], str]] = {
    "counts": table,
    "counts under transactions": table,
    "counts of damages": damage_tables,
    "counts of a cluster": table,
    "counts of power cuts of a cluster": table,
}


def put(page: str, name: str, note: str, counts: Counter[str]) -> str:
    begin, end = marks(name)
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{note}\n\n{TABLES[name](counts)}{end}{rest.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tallies", nargs="+", type=Path)
    parser.add_argument("--table", choices=TABLES, default="counts")
    parser.add_argument("--note", required=True, help="when, where and of which commit")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for tally in options.tallies:
        counts.update(json.loads(tally.read_text()))
    PAGE.write_text(put(PAGE.read_text(), options.table, options.note, counts))


if __name__ == "__main__":
    main()
