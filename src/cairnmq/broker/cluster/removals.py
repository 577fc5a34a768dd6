"""Which brokers this one has found dead, by their addresses, and when it may do so again (R35)."""

from __future__ import annotations

PATIENCE_SESSIONS = 10


class Removals:
    """A broker that was removed and registers again lives: it is this broker that does not reach it. It could never
    lead anything if it were removed again at once, so its session decides for a while."""

    def __init__(self, session_ms: int) -> None:
        self._patience_ms = PATIENCE_SESSIONS * session_ms
        self._removed: dict[int, tuple[int, int]] = {}  # broker -> its life, and when that was removed

    def may_remove(self, broker: int, broker_epoch: int, now_ms: int) -> bool:
        """Asked before it is done; the same life may be removed again and again, until that succeeds."""
        life, since = self._removed.get(broker, (broker_epoch, now_ms))
        if life != broker_epoch:
            if now_ms - since < self._patience_ms:
                return False
            since = now_ms
        self._removed[broker] = broker_epoch, since
        return True
