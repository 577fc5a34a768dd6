"""What a start says in the log about the journals it found."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cairnmq.storage.api.start import Scan

log = logging.getLogger("cairnmq.broker")


def tell_scans(scans: Sequence[Scan]) -> None:
    """Before anything is cut."""
    for scan in scans:
        if scan.cut_bytes:
            log.warning(
                "journal %d: its last %d bytes, from position %d on, were written but never synced, and do not read "
                "back; they are cut off",
                scan.number,
                scan.cut_bytes,
                scan.end,
            )
        if scan.hole is not None:
            log.warning(
                "journal %d: the file %s ends at %d, before position %d, where the checkpoint stands. All that is "
                "missing is in queue logs, so nothing is lost; the journal goes on in a new file. Look at the disk.",
                scan.number,
                scan.hole.file,
                scan.hole.position,
                scan.end,
            )
        if scan.damage is not None:
            log.error("%s", scan.damage_text)


def tell_strays(names: Sequence[str], where: str) -> None:
    if names:
        log.warning("%s: passed over what is no journal of this broker: %s", where, ", ".join(names))
