"""Disks that a broker loses while it is down, and settings with which its replicas then need more than journals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cluster.brokers import Cluster

LITTLE_KEPT = {
    "cairn.journal.retention.bytes": "0",
    "cairn.journal.segment.bytes": "65536",
    "cairn.checkpoint.interval.ms": "300",
}
JOURNALS = "journal"


def wipe_journals(data: Path) -> None:
    shutil.rmtree(data / JOURNALS)


def wipe_data(data: Path) -> None:
    for found in data.iterdir():
        if found.name != JOURNALS and found.is_dir():
            shutil.rmtree(found)
        elif found.name != JOURNALS:
            found.unlink()


def wipe_both(data: Path) -> None:
    shutil.rmtree(data)


WIPES: dict[str, Callable[[Path], None]] = {
    "lost journal disks": wipe_journals,
    "lost data disks": wipe_data,
    "lost disks, both": wipe_both,
}


def installs(cluster: Cluster, node: int) -> int:
    """Journals that this broker has taken over, in all of its processes."""
    return cluster.brokers[node].log().count("continues with what was taken over from its leader")
