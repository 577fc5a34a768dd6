"""`cairn repair DIR`: makes a checkpoint again that is damaged or gone; says what it will do, and asks."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import examples
from cairnmq.cli.terminal import agreed, note, write_line

if TYPE_CHECKING:
    from cairnmq.storage.api.repairing import Metadata as _Metadata

REMARKS = """\
Stop the broker first, and copy both directories if you can.

Shows what it will do and what will be lost, asks for confirmation, and keeps the old files in DIR/lost.

Exit code 0: repaired, or nothing was wrong. 1: not possible or not confirmed; nothing was changed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Rebuilds the checkpoint of a data directory from its segments, packs and journals. Use it when the broker "
        "refuses to start because the checkpoint is damaged, missing or an old copy."
    )
    examples(
        parser,
        "cairn repair /var/lib/cairn",
        "cairn repair /var/lib/cairn --journal-dir /fast/journals --yes",
        remarks=REMARKS,
    )
    parser.add_argument("dir", metavar="DIR", help="data directory")
    parser.add_argument("--journal-dir", metavar="J", help="directory of its journals (default DIR/journal)")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
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
            note(f"the checkpoint of {root} is intact; `cairn verify {root}` checks everything else")
            return 0
        now_ms = time.time_ns() // 1_000_000
        plan = make_plan(journal_disk, read_disk, metadata, problem, now_ms=now_ms, text_of=_time)
        for line in plan.lines():
            write_line(line)
        sys.stdout.flush()
        if not (arguments.yes or agreed(f"`cairn repair {root} --yes`")):
            return 1
        carry_out(read_disk, plan)
        kept = f" The old files are in {root}/{plan.place}." if plan.damaged or plan.aside else ""
        note(f"repaired: start the broker.{kept}")
        return 0
    finally:
        for one in held:
            one.close()


def _refuse_others(root: str, journal_root: str) -> None:
    """Runs before a lock file is created, which must not happen in a directory that is not a data directory."""
    from cairnmq.errors import Corrupt

    if not os.path.isfile(os.path.join(root, "meta.db")):
        raise Corrupt(
            f"{root}/meta.db is missing: this is not a data directory, or its metadata is lost. Restore the file "
            f"first; without it the topics are unknown. Nothing was changed."
        )
    if not os.path.isdir(journal_root):
        raise Corrupt(
            f"{journal_root} is missing: give the directory of the journals with --journal-dir. Nothing was changed."
        )


def _metadata(path: str) -> tuple[str, _Metadata]:
    """The cluster id, and the topics and settings that a repair needs."""
    from cairnmq.broker.coordination.slot_keys import place_of
    from cairnmq.broker.live_catalog import all_queue_specs
    from cairnmq.errors import Refusal
    from cairnmq.groups import pending
    from cairnmq.metadata.inspection import copied_catalog
    from cairnmq.metadata.topics import placed
    from cairnmq.settings.broker import BrokerConfig
    from cairnmq.storage.api.repairing import Metadata
    from cairnmq.transactions import record
    from cairnmq.types import SlotPlace

    with copied_catalog(path) as (catalog, counters):
        changed = catalog.broker_config(BrokerConfig())
        config = BrokerConfig() if isinstance(changed, Refusal) else changed
        specs = all_queue_specs(placed(catalog.image, catalog.journals), config)
        spaces, slots = (record.SPACE, pending.SPACE), catalog.image.slots

        def home_of(space: str, key: bytes) -> SlotPlace:
            place = place_of(slots, space, key) if slots is not None else None
            return place or SlotPlace(0, 0)

        return catalog.cluster_id, Metadata(specs, counters, spaces, config.producer_id_expiration_ms, home_of)


def _time(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
