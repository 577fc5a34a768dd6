"""`make bench [ROWS=row,row] [QUICK=1] [SHOW=1]`: runs rows one after another, writes their tables and pictures."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys

from bench.amplification import AMPLIFICATION
from bench.burst import BURST
from bench.compaction import COMPACTION
from bench.durable import DURABLE
from bench.failover import FAILOVER
from bench.flat import FLAT
from bench.goals import goal_table, summary
from bench.groups import GROUPS
from bench.latency import LATENCY
from bench.load import Load, run_load
from bench.many import MANY
from bench.neighbour import NEIGHBOUR
from bench.offsets import OFFSETS
from bench.page import put
from bench.replicas import REPLICAS_ROW
from bench.restart import RESTART
from bench.results import HOME, ROOT, Run, Store, say
from bench.row import Row
from bench.servers import Server, Servers
from bench.small import SMALL
from bench.spark import SPARK
from bench.start import START
from bench.sustained import SUSTAINED
from bench.sweep import SWEEP
from bench.table import footing
from bench.tail import TAIL
from bench.transactions import TRANSACTIONS
from bench.txn_replicas import TXN_REPLICAS

ALL = (
    SWEEP,
    TAIL,
    SMALL,
    DURABLE,
    SUSTAINED,
    FLAT,
    LATENCY,
    NEIGHBOUR,
    BURST,
    MANY,
    AMPLIFICATION,
    START,
    RESTART,
    TRANSACTIONS,
    GROUPS,
    OFFSETS,
    COMPACTION,
    FAILOVER,
    REPLICAS_ROW,
    TXN_REPLICAS,
    SPARK,
)
ROWS = {row.name: row for row in ALL}
SUMMARY = "goals"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "bench"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", default="", help="comma separated; all without it")
    parser.add_argument("--quick", action="store_true", help="one short turn each; prints, docs stay as they are")
    parser.add_argument("--show", action="store_true", help="nothing is measured: what is stored is written again")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # servers are ended on the way out
    names = [name for name in options.rows.split(",") if name] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if options.show:
        for name in names:
            kept = Store.kept(name, options.quick)
            if kept is not None:
                publish(ROWS[name], kept)
        return 0
    shutil.rmtree(HOME / "work", ignore_errors=True)
    with Servers("pair", quick_warm_up if options.quick else warm_up) as servers:
        for name in names:
            store = Store(name, options.quick)
            ROWS[name].measure(store, servers)
            publish(ROWS[name], store.finish())
    return 0


def warm_up(server: Server) -> None:
    """The JVM compiles what runs often: its first gigabytes take twice the CPU of later ones."""
    run_load(server, Load(10, 3000, consume=True))
    run_load(server, Load(1000, 500, consume=True))


def quick_warm_up(server: Server) -> None:
    run_load(server, Load(10, 200, consume=True))
    run_load(server, Load(1000, 100, consume=True))


def publish(row: Row, run: Run) -> None:
    """A quick run is for whoever runs it; the page holds full ones."""
    command = f"make bench ROWS={row.name}{' QUICK=1' if run.quick else ''}"
    goals = f"{goal_table(row.goals, run)}\n\n" if row.goals else ""
    text = f"{row.body(run)}\n\n{goals}{footing(run, command)}"
    sys.stdout.write(f"## {row.name}\n{text}\n\n")
    sys.stdout.flush()
    if run.quick:
        return
    PICTURES.mkdir(exist_ok=True)
    for name, picture in row.pictures(run).items():
        (PICTURES / f"{name}.svg").write_text(picture)
        text += f"\n\n![{name}](bench/{name}.svg)"
    page = put(PAGE.read_text(), row.name, text)
    PAGE.write_text(put(page, SUMMARY, summary(put(page, SUMMARY, ""))))
    say(f"{row.name} written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
