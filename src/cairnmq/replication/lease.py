"""How long a leader may act for itself. It bounds what acks=1 can lose to another leader (R18); acks=all needs none."""

from __future__ import annotations


class Lease:
    """`now_ms` is a clock that counts suspended time too (CLOCK_BOOTTIME)."""

    __slots__ = ("_confirmed_ms", "_session_ms")

    def __init__(self, session_ms: int, now_ms: int) -> None:
        self._session_ms = session_ms
        self._confirmed_ms = now_ms

    def confirm(self, sent_ms: int) -> None:
        """The store, or an in-sync follower of this epoch, has replied to what was sent at this time. The time of the
        request counts: its response may have waited for as long as this process stood still."""
        self._confirmed_ms = max(sent_ms, self._confirmed_ms)

    def holds(self, now_ms: int) -> bool:
        """Ask it right before a response leaves."""
        return (now_ms - self._confirmed_ms) * 3 < self._session_ms * 2
