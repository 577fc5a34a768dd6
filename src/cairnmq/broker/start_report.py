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
                "journal %d: truncated the last %d bytes, from position %d: they were never synced and are damaged",
                scan.number,
                scan.cut_bytes,
                scan.end,
            )
        if scan.hole is not None:
            log.warning(
                "journal %d: file %s ends at %d, before the checkpoint's position %d. The missing part is in queue "
                "logs, so "
                "nothing is lost, and the journal continues in a new file. Check the disk.",
                scan.number,
                scan.hole.file,
                scan.hole.position,
                scan.end,
            )
        if scan.damage is not None:
            log.error("%s", scan.damage_text)


def tell_strays(names: Sequence[str], where: str) -> None:
    if names:
        log.warning("%s: ignored entries that are not journals of this broker: %s", where, ", ".join(names))
