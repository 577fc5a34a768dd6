"""Bytes of records by topic, for monitoring. Bounded: so many topics by name, all others together."""

from __future__ import annotations

from collections.abc import Callable

TOPICS_MAX = 1_000  # a monitoring system pays for every one of them
OTHERS = "(others)"  # no topic can have this name


class TopicTraffic:
    """`counts` has [bytes in, bytes out] of each topic that had any, until it is deleted."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {OTHERS: [0, 0]}

    def took(self, topic: str, size: int) -> None:
        self._of(topic)[0] += size

    def gave(self, topic: str, size: int) -> None:
        self._of(topic)[1] += size

    def _of(self, topic: str) -> list[int]:
        found = self.counts.get(topic)
        if found is None:
            if len(self.counts) > TOPICS_MAX:
                return self.counts[OTHERS]
            found = self.counts[topic] = [0, 0]
        return found

    def forget_unless(self, exists: Callable[[str], object]) -> None:
        """Deleted topics make room for others."""
        for topic in [topic for topic in self.counts if topic != OTHERS and not exists(topic)]:
            del self.counts[topic]
