"""The counts of finished campaigns as a table of docs/reliability.md: `python -m chaos.counts TALLY... --note TEXT`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->"


def table(counts: Counter[str]) -> str:
    rows = [f"| {name} | {count:,} |" for name, count in sorted(counts.items())]
    return "\n".join(["| what | how often |", "|---|---|", *rows]) + "\n"


def put(page: str, note: str, counts: Counter[str]) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{note}\n\n{table(counts)}{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tallies", nargs="+", type=Path)
    parser.add_argument("--note", required=True, help="when, where and of which commit")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for tally in options.tallies:
        counts.update(json.loads(tally.read_text()))
    PAGE.write_text(put(PAGE.read_text(), options.note, counts))


if __name__ == "__main__":
    main()
