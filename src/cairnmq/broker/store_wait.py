"""A start that waits for the metadata store that brokers share: another process holds the lock of the file, or
ZooKeeper is away. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from cairnmq.broker.start_errors import CannotServe
from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata.shared_place import SharedPlace

log = logging.getLogger("cairnmq.broker")

PATIENCE_SECONDS = 15.0
"""As for the first connection to ZooKeeper."""

_PAUSE_SECONDS = 0.1

T = TypeVar("T")


class StoreWait:
    """For each step of one start."""

    def __init__(
        self,
        place: SharedPlace,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._place = place
        self._clock = clock
        self._sleep = sleep

    def until(self, step: Callable[[], T], fault: type[Fault] = Unreachable) -> T:
        """What a step that may be repeated comes to, as soon as it does not end with this fault."""
        give_up, is_told = self._clock() + PATIENCE_SECONDS, False
        while True:
            try:
                return step()
            except fault as error:
                if self._clock() >= give_up:
                    raise CannotServe(self._refusal(error)) from error
                if not is_told:
                    log.warning(
                        "start: the metadata cannot be used yet: %s; waiting up to %g s", error, PATIENCE_SECONDS
                    )
                    is_told = True
            self._sleep(_PAUSE_SECONDS)

    def _refusal(self, error: Fault) -> str:
        told = f"--metadata {self._place}: {error}; waited {PATIENCE_SECONDS:g} s"
        if self._place.path is None:
            return told
        return (
            f"{told}. Another broker of this machine may be suspended (SIGSTOP) in the middle of a change: let it "
            f"continue, or kill it"
        )
