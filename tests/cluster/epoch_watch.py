"""What librdkafka says of its producers' epochs.

An idempotent producer of librdkafka begins a new epoch when a batch is refused for its sequence because the one before
it was refused: NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS, and by the time of the next one the leader takes batches
(`rd_kafka_idemp_drain_epoch_bump`, "skipped sequence numbers"); also when a record times out. In the new epoch all its
partitions begin at sequence 0, and what was not answered by then is sent again as new. Of another partition that may be
stored: a leader that is demoted answers NOT_LEADER_OR_FOLLOWER to what it has written. Apache Kafka's brokers answer
alike (github.com/confluentinc/librdkafka, issue 4953).
"""

from __future__ import annotations

from collections.abc import Callable

BEGUN = "bumped epoch to"


class EpochWatch:
    """The `logger` of a producer with these `settings`. `begun` is called by whoever polls it, before any report of
    what was delivered under the new epoch."""

    settings = {"debug": "eos", "log_level": 7}

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun

    def log(self, level: int, form: str, *words: object) -> None:
        if BEGUN in form % words:
            self._begun()
