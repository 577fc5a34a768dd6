"""Brokers that live no more, of which clients are still told for a while.

A client drops a broker that Metadata names no longer, with all that waits for it there. librdkafka waits for ever for a
group coordinator that it has dropped (its issue 5511). While the broker is named, clients see that they cannot reach
it, and ask who coordinates now. Kafka names a killed broker until its session is over, nine seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.broker.leadership import KnownBroker

TOLD_MS = 10_000


class Departures:
    """Of one cluster, as this broker has seen them. `now_ms` never goes back."""

    def __init__(self) -> None:
        self._live: dict[int, KnownBroker] = {}
        self._gone: dict[int, tuple[KnownBroker, int]] = {}  # and since when

    def see(self, live: Iterable[KnownBroker], now_ms: int) -> None:
        """Those that live by now."""
        before, self._live = self._live, {each.node_id: each for each in live}
        for node, broker in before.items():
            if node not in self._live:
                self._gone[node] = broker, now_ms
        for node in self._live:
            self._gone.pop(node, None)

    def told(self, now_ms: int) -> tuple[KnownBroker, ...]:
        """Those that clients are still told of, by id."""
        for node, (_, since) in list(self._gone.items()):
            if now_ms - since >= TOLD_MS:
                del self._gone[node]
        return tuple(broker for _, (broker, _) in sorted(self._gone.items()))
