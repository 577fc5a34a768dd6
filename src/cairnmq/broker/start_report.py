"""What a start says in the log: how far recovery is, and about the journals that it found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from cairnmq.broker.start_errors import Stopped
from cairnmq.storage.api.start import Loss, Scan

log = logging.getLogger("cairnmq.broker")


class RecoveryProgress:
    """Says how far recovery is, at most once a second, and ends it when the broker is to stop: a scan changes nothing,
    and whatever else recovery does a crash may interrupt too."""

    def __init__(self, stopping: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._stopping = stopping
        self._clock = clock
        self._next = clock() + 1.0

    def __call__(self, scanned: int, whole: int) -> None:
        if self._stopping():
            raise Stopped
        now = self._clock()
        if now >= self._next:
            self._next = now + 1.0
            log.info("recovery: %d of %d journal bytes scanned", scanned, whole)


def tell_scans(scans: Collection[Scan]) -> None:
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


def tell_foreign(names: Sequence[str], where: str) -> None:
    if names:
        log.warning("%s: ignored entries that are not journals of this broker: %s", where, ", ".join(names))


def tell_accepted(loss: Loss) -> None:
    for line in [*loss.what, *(f"lost: {queue}" for queue in loss.queues)]:
        log.error("--accept-loss: %s", line)
