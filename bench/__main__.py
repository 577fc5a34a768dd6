"""`make bench [ROWS=row,row] [QUICK=1]`: runs rows one after another and writes their tables and pictures."""

from __future__ import annotations

import argparse
import shutil
import sys

from bench.flat import FLAT
from bench.latency import LATENCY
from bench.many import MANY
from bench.page import put
from bench.results import HOME, ROOT, Run, Store, say
from bench.row import Row
from bench.start import START
from bench.sweep import SWEEP
from bench.table import footing

ROWS = {row.name: row for row in (SWEEP, FLAT, MANY, START, LATENCY)}
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "bench"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", default="", help="comma separated; all without it")
    parser.add_argument("--quick", action="store_true", help="one short turn each; prints, docs stay as they are")
    options = parser.parse_args()
    names = [name for name in options.rows.split(",") if name] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    shutil.rmtree(HOME / "work", ignore_errors=True)
    for name in names:
        row = ROWS[name]
        store = Store(name, options.quick)
        row.measure(store)
        publish(row, store.finish())
    return 0


def publish(row: Row, run: Run) -> None:
    """A quick run is for whoever runs it; the page holds full ones."""
    command = f"make bench ROWS={row.name}{' QUICK=1' if run.quick else ''}"
    text = f"{row.body(run)}\n\n{footing(run, command)}"
    sys.stdout.write(f"## {row.name}\n{text}\n\n")
    sys.stdout.flush()
    if run.quick:
        return
    PICTURES.mkdir(exist_ok=True)
    for name, picture in row.pictures(run).items():
        (PICTURES / f"{name}.svg").write_text(picture)
        text += f"\n\n![{name}](bench/{name}.svg)"
    PAGE.write_text(put(PAGE.read_text(), row.name, text))
    say(f"{row.name} written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
