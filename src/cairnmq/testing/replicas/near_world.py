"""The machines of `stored_world.py` with consumers that read from followers (KIP-392).

Nobody gets a record that is not replicated, or not durable if it must be, and nobody misses one. Who reads committed
records gets none of an open transaction, and is told which are aborted. A follower is never later than it may be.
"""

from __future__ import annotations

from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.testing.replicas.near_judge import NearJudge
from cairnmq.testing.replicas.stored_readers import StoredReaders
from cairnmq.testing.replicas.stored_replica import Life
from cairnmq.testing.replicas.stored_world import StoredWorld

STEPS = 1_500


class NearWorld(StoredWorld):
    """As its base, with readers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.near_judge = NearJudge(self.judge)
        self.readers = StoredReaders(self.random, self.lives, self.store.view, self.near_judge, self.counts)
        self.more = [
            (80, lambda: self.readers.read(self.now_ms)),
            (10, self.readers.look),
            (20, self.clients.send),
            (20, lambda: self._with_any(self._look_at)),
            (120, self._fetch),
            (10, self._sync),
            (10, self._propose),
        ]

    def run(self, steps: int = STEPS) -> None:
        """Readers go where they are sent, and come back."""
        super().run(steps)

    def _fetch(self) -> None:
        """Replies come late more often than elsewhere."""
        life = self._any()
        if life is not None:
            chance = self.random.choice((0.0, 0.5, 0.5, 0.5, 1.0))
            self._fetch_for(life, self.random.choice((40, 150, 700, 5000)), chance)

    def _replied(self, life: Life, asked: FetchPosition, reply: FetchReply, data: bytes) -> None:
        if isinstance(reply, Accepted):
            self.near_judge.accepted(asked.follower, asked.epoch)
        super()._replied(life, asked, reply, data)

    def _check(self) -> None:
        super()._check()
        self.near_judge.look(self.lives, self.store.kept.record.recovered, self.now_ms)
