"""What is left of a decided end: queues without a marker, and groups whose offsets still wait. Pure.

The result is stored, so nothing can change it: what is left is asked again and again, until every place has said that
it is done.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.errors import ErrorCode
from cairnmq.transactions.messages import WriteMarkers

# The second: somebody with a later epoch has ended it there, so nothing of this transaction is open any more.
DONE = frozenset((ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH))


class Ending:
    """Of one transaction. `refused`: what places said that are not done, or were done by others."""

    def __init__(self, markers: WriteMarkers) -> None:
        self.markers = markers
        self.queues = set(markers.queues)
        self.groups = set(markers.groups)
        self.refused: set[ErrorCode] = set()

    @property
    def is_done(self) -> bool:
        """Every place has said so."""
        return not self.queues and not self.groups

    def told_of_queues(self, told: Iterable[tuple[int, ErrorCode]]) -> None:
        """What became of markers."""
        for queue, code in told:
            self._note(code)
            if code in DONE:
                self.queues.discard(queue)

    def told_of_groups(self, told: Iterable[tuple[str, ErrorCode]]) -> None:
        """What became of ends of offsets."""
        for group, code in told:
            self._note(code)
            if code in DONE:
                self.groups.discard(group)

    def _note(self, code: ErrorCode) -> None:
        if code:
            self.refused.add(code)
