"""A start that waits for the end of another broker's session: of one that is dead. Blocking.

Sessions of the dead end only while somebody writes, so it renews its own. A session that is renewed meanwhile is that
of a live broker, and is not waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from cairnmq.errors import Unreachable
from cairnmq.metadata.store import Away, MetadataStore, Session

log = logging.getLogger("cairnmq.broker")


class Obstacle(Struct, frozen=True):
    """A session in the way: the key that it holds, a sentence for the log, and one in case it goes on."""

    key: str
    told: str
    refusal: str


class SessionWait:
    """For the session that holds the key of an obstacle."""

    def __init__(
        self,
        store: MetadataStore,
        obstacle: Obstacle,
        session: Session,
        patience_ms: int,
        clock: Callable[[], int],
        sleep: Callable[[float], None],
    ) -> None:
        self._store = store
        self._key = obstacle.key
        self._session = session
        self._give_up_ms = clock() + patience_ms
        self._clock = clock
        self._sleep = sleep
        log.info("%s; waiting up to %g s for its end", obstacle.told, patience_ms / 1000)

    def is_over(self) -> bool:
        """Waits a moment. True: the other broker is alive, or the time has passed."""
        session = self._session
        before_ms, written_ms = self._store.held_until_ms(self._key), session.confirmed_ms
        self._sleep(max(session.pace_ms // 4, 1) / 1000)
        alive = session.renew()
        if isinstance(alive, Away):
            raise Unreachable(alive.reason)
        after_ms = self._store.held_until_ms(self._key)
        # After a silence of half a session every session gets its whole time again, also those of the dead.
        may_be_silence = self._clock() - written_ms > session.pace_ms * 3 // 2
        is_renewed = before_ms is not None and after_ms is not None and after_ms > before_ms and not may_be_silence
        return is_renewed or self._clock() >= self._give_up_ms
