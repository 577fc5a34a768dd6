"""`cairn repair DIR`: makes a checkpoint again that is damaged or gone; says what it will do, and asks."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import examples
from cairnmq.cli.terminal import note, write_line

if TYPE_CHECKING:
    from cairnmq.storage.api.repairing import Metadata as _Metadata

REMARKS = """\
It says what it will do and what is lost by it, asks, and keeps the old files in DIR/lost.
No broker may run on the directory. Copy both directories first if you can.

Exit 0: it is repaired, or nothing was wrong. 1: it cannot be repaired, or nobody said yes; nothing was changed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Rebuilds the checkpoint of a data directory from its segments, packs and journals, when the checkpoint is "
        "damaged, gone or an old copy, and a start is refused because of it."
    )
    examples(
        parser,
        "cairn repair /var/lib/cairn",
        "cairn repair /var/lib/cairn --journal-dir /fast/journals --yes",
        remarks=REMARKS,
    )
    parser.add_argument("dir", metavar="DIR", help="data directory")
    parser.add_argument("--journal-dir", metavar="J", help="where its journals are, if not in DIR/journal")
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.storage.api.repairing import carry_out, find_problem, make_plan
    from cairnmq.storage.api.start import RealDisk, check_owner, lock_all

    root = arguments.dir.rstrip("/") or "/"
    journal_root = arguments.journal_dir or os.path.join(root, "journal")
    _refuse_others(root, journal_root)
    held = lock_all([root, journal_root])
    try:
        cluster_id, metadata = _metadata(os.path.join(root, "meta.db"))
        journal_disk, read_disk = RealDisk(journal_root), RealDisk(root)
        check_owner(
            journal_disk,
            read_disk,
            cluster_id,
            where=journal_root,
            has_topics=bool(metadata.specs),
            accept_loss=False,
        )
        problem = find_problem(journal_disk, read_disk, metadata.specs)
        if problem is None:
            note(f"nothing is wrong with the checkpoint of {root}. `cairn verify {root}` checks all else.")
            return 0
        now_ms = time.time_ns() // 1_000_000
        plan = make_plan(journal_disk, read_disk, metadata, problem, now_ms=now_ms, text_of=_time)
        for line in plan.lines():
            write_line(line)
        sys.stdout.flush()
        if not (arguments.yes or _agreed(root)):
            return 1
        carry_out(read_disk, plan)
        kept = f" The old files are in {root}/{plan.place}." if plan.damaged or plan.aside else ""
        note(f"repaired: start the broker.{kept}")
        return 0
    finally:
        for one in held:
            one.close()


def _refuse_others(root: str, journal_root: str) -> None:
    """Before a lock is made in a directory that is none of ours."""
    from cairnmq.errors import Corrupt

    if not os.path.isfile(os.path.join(root, "meta.db")):
        raise Corrupt(
            f"{root}/meta.db is not there: this is no data directory, or its metadata are lost. Without them nobody "
            f"knows which topics exist; put the file back first. Nothing was changed."
        )
    if not os.path.isdir(journal_root):
        raise Corrupt(
            f"{journal_root} is not there: name the directory of the journals with --journal-dir. Nothing was changed."
        )


def _metadata(path: str) -> tuple[str, _Metadata]:
    """The cluster id, and what a repair must know of topics."""
    from cairnmq.broker.live_catalog import queue_specs
    from cairnmq.errors import Refusal
    from cairnmq.groups import pending
    from cairnmq.metadata.inspection import copied_catalog
    from cairnmq.settings.broker import BrokerConfig
    from cairnmq.storage.api.repairing import Metadata
    from cairnmq.transactions import record

    with copied_catalog(path) as (catalog, counters):
        changed = catalog.broker_config(BrokerConfig())
        config = BrokerConfig() if isinstance(changed, Refusal) else changed
        specs = [spec for topic in catalog.image.topics.values() for spec in queue_specs(topic, config)]
        spaces = (record.SPACE, pending.SPACE)
        return catalog.cluster_id, Metadata(specs, counters, spaces, config.producer_id_expiration_ms)


def _agreed(root: str) -> bool:
    if not sys.stdin.isatty():
        note(f"nothing was changed. `cairn repair {root} --yes` does it.")
        return False
    sys.stderr.write("Do this? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("nothing was changed.")
    return False


def _time(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
