"""Named places where a test may kill the process: `cairn.fault.point=NAME[:COUNT]` ends it there by SIGKILL.

A fault point costs one comparison when none is set, and shows the tests that a phase was really hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS = (
    "journal-write",
    "journal-sync",
    "journal-roll",
    "split-round",
    "checkpoint-sync",
    "checkpoint-publish",
    "checkpoint-report",
    "retention-delete",
    "journal-delete",
    "compaction-write",
    "compaction-swap",
    "compaction-delete",
    "recovery-scan",
    "recovery-cut",
    "upgrade-split",
    "upgrade-checkpoint",
    "upgrade-owner",
    "clean-stop",
    "install-pack",
    "install-complete",
    "install-packs-moved",
    "install-journal-removed",
    "install-published",
    "install-tidied",
)

_armed: str | None = None
_left = 0


def _nothing() -> None:
    pass


_strike: Callable[[], None] = _nothing


def arm(setting: str, strike: Callable[[], None]) -> None:
    """`strike` is called at the COUNTth arrival; it does not return in a real process."""
    global _armed, _left, _strike
    name, _, count = setting.partition(":")
    if name and name not in POINTS:
        raise ValueError(f"cairn.fault.point={name}: no such point; one of {', '.join(POINTS)}")
    _armed, _left, _strike = name or None, int(count or 1), strike


@contextmanager
def disarmed() -> Iterator[None]:
    """Whatever is armed waits until this is over: for a simulated world beside the one that it was meant for."""
    global _armed
    before, _armed = _armed, None
    try:
        yield
    finally:
        _armed = before


def reach(point: str) -> None:
    global _left
    if _armed == point:
        _left -= 1
        if _left == 0:
            _strike()
