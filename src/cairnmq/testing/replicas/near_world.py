"""The machines of `stored_world.py` with consumers that read from followers (KIP-392).

Nobody gets a record that is not replicated, or not durable if it must be, and nobody misses one. Who reads committed
records gets none of an open transaction, and is told which are aborted. A follower is never later than it may be.
"""

from __future__ import annotations

from cairnmq.testing.replicas.near_judge import NearJudge
from cairnmq.testing.replicas.stored_readers import StoredReaders
from cairnmq.testing.replicas.stored_world import StoredWorld

STEPS = 700


class NearWorld(StoredWorld):
    """As its base, with readers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.near_judge = NearJudge(self.judge)
        self.readers = StoredReaders(self.random, self.lives, self.store.view, self.near_judge, self.counts)
        self.more = [
            (40, lambda: self.readers.read(self.now_ms)),
            (10, self.readers.look),
            (30, lambda: self._with_any(self._look_at)),
            (30, self._fetch),
            (10, self._propose),
        ]

    def run(self, steps: int = STEPS) -> None:
        """Readers go where they are sent, and come back."""
        super().run(steps)

    def _check(self) -> None:
        super()._check()
        self.near_judge.look(self.lives, self.store.kept.record.recovered, self.now_ms)
