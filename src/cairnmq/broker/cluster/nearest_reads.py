"""Reads of clients that say in which rack they are (KIP-392): what this broker serves as a follower, and where it sends
readers as a leader. Decided in cairnmq.replication.follower_reads; here are the replicas, settings and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.leadership import Leadership
from cairnmq.errors import ErrorCode
from cairnmq.replication.follower_reads import readable, sends_within_ms
from cairnmq.replication.records import ClusterView
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.cluster import follower_lag_max_ms, reads_from_followers

SEND_AGAIN_MS = 60_000  # who comes back earlier was sent back, or does not go: it is served here
SENT_MAX = 100_000
WAITS_PER_LAG = 4  # a follower without news hears from its leader so often within the time that it may be late
WAIT_MS_MIN = 25


def ask_again_ms(config: BrokerConfig, rack: str | None, usual_ms: int) -> int:
    """For how long a request of this broker to a leader may wait there for news. Until then it becomes late."""
    if rack is None or not reads_from_followers(config):
        return usual_ms
    return min(usual_ms, max(WAIT_MS_MIN, follower_lag_max_ms(config) // WAITS_PER_LAG))


class NearestReads:
    """`bytes_given` to readers here while another broker leads; `sent_back` counts their partitions that are not served
    here any more, `sent_on` those that are to be read elsewhere."""

    def __init__(
        self,
        by_journal: Mapping[int, JournalReplica],
        leadership: Leadership,
        view: Callable[[], ClusterView | None],
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
    ) -> None:
        self.bytes_given = self.sent_back = self.sent_on = 0
        self.now_ms = now_ms
        self._by_journal = by_journal
        self._leadership = leadership
        self._view = view
        self._config = config
        self._sent: dict[tuple[int, int], int] = {}  # when, by connection and queue; the oldest first

    @property
    def is_on(self) -> bool:
        """Whether readers may be served by followers at all."""
        return reads_from_followers(self._config())

    @property
    def _lag_max_ms(self) -> int:
        return follower_lag_max_ms(self._config())

    def is_rack(self, rack: str) -> bool:
        """Whether this broker is in it."""
        return self._rack_of(self._leadership.node) == rack

    def _rack_of(self, node: int) -> str | None:
        known = self._leadership.broker(node)
        return None if known is None else known.rack

    # ------------------------------------------------------------------------------------------------ as a follower

    def refusal(self, journal: int, client_epoch: int = -1) -> ErrorCode:
        """NONE: its queues may be read here, though another broker leads them. `client_epoch`: as the client knows it,
        -1 if it does not say."""
        replica = self._by_journal.get(journal)
        follower = None if replica is None else replica.copying.follower
        if replica is None or follower is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms, reads = self.now_ms(), follower.reads
        refusal = follower.read_refusal(client_epoch, now_ms, self._lag_max_ms)
        if not refusal:
            is_first = not reads.has_readers(now_ms)
            reads.read(now_ms)
            if is_first:
                replica.copying.wake()
        return refusal

    def has_all_of(self, journal: int, then_ms: int) -> bool:
        """Whether its queues show here what their leader showed at that time."""
        replica = self._by_journal.get(journal)
        follower = None if replica is None else replica.copying.follower
        return follower is not None and follower.reads.has_all_of(then_ms)

    def may_wait_ms(self, journal: int) -> int:
        """For how long a reader may wait here for more, before it has to be sent back."""
        replica = self._by_journal.get(journal)
        follower = None if replica is None else replica.copying.follower
        lag_ms = None if follower is None else follower.reads.lag_ms(self.now_ms())
        return 0 if lag_ms is None else max(0, self._lag_max_ms - lag_ms) + 1

    # -------------------------------------------------------------------------------------------------- as a leader

    def elsewhere(self, journal: int, rack: str) -> list[int]:
        """Brokers in that rack from which this journal's queues may be read, instead of here."""
        replica, view = self._by_journal.get(journal), self._view()
        if replica is None or replica.leader is None or view is None:
            return []
        found = readable(replica.leader, view, self.now_ms(), sends_within_ms(self._lag_max_ms))
        return [broker for broker in found if self._rack_of(broker) == rack]

    def sends(self, connection: int, queue_id: int) -> bool:
        """Whether the client of this connection is told now where to read a queue. Not again within a minute: a client
        that a follower has sent back would go there and back, and read nothing meanwhile."""
        now_ms, key = self.now_ms(), (connection, queue_id)
        while self._sent and now_ms - next(iter(self._sent.values())) >= SEND_AGAIN_MS:
            del self._sent[next(iter(self._sent))]
        if key in self._sent or len(self._sent) >= SENT_MAX:
            return False
        self._sent[key] = now_ms
        self.sent_on += 1
        return True
