"""A transactional id as it is stored: one keyed fact per id, whose latest value is all that a restart needs."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct

from cairnmq.decision import KeyedRecord

SPACE = "transaction"
NO_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The last epoch that a producer is given. The one above it is left to fence that producer.
EPOCH_LAST_GIVEN = EPOCH_MAX - 1


class State(StrEnum):
    """Kafka's names, as tools show them. Dead is what an id that does not exist (any more) is said to be."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"  # Kafka's name for a moment that does not exist here; tools may filter it


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

# Which state may follow which. A transaction without queues and groups is complete as soon as its end is decided; one
# of version 2 may be aborted although nothing was added, so that its epoch is raised.
_FROM_IDLE = frozenset((State.EMPTY, State.ONGOING, State.COMPLETE_ABORT))
NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: _FROM_IDLE,
    State.ONGOING: frozenset(State) - {State.EMPTY, State.DEAD, State.PREPARE_EPOCH_FENCE},
    State.PREPARE_COMMIT: frozenset((State.COMPLETE_COMMIT,)),
    State.PREPARE_ABORT: frozenset((State.COMPLETE_ABORT,)),
    State.COMPLETE_COMMIT: _FROM_IDLE,
    State.COMPLETE_ABORT: _FROM_IDLE,
}


class TransactionRecord(Struct, frozen=True, array_like=True):
    """All that is known of a transactional id.

    `last_epoch`: the epoch before this one, if who had it may ask again for this one. `previous_id`: the producer id
    before the last change; `next_id`: the one to take when the markers are written, because epochs ran out.
    `queues` and `groups` are those of the open transaction. `raised`: its end was prepared with an epoch above that of
    its records. `since`: the epoch of the broker when it gave out the producer id.
    """

    producer_id: int
    epoch: int
    state: State
    timeout_ms: int
    update_ms: int
    start_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    next_id: int = NO_ID
    queues: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()
    raised: bool = False
    since: int = 0

    @property
    def exhausted(self) -> bool:
        """No epoch is left that a producer could be given."""
        return self.epoch >= EPOCH_LAST_GIVEN


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TransactionRecord)


def put(transactional_id: str, record: TransactionRecord) -> KeyedRecord:
    return SPACE, transactional_id.encode(), _encoder.encode(record)


def drop(transactional_id: str) -> KeyedRecord:
    return SPACE, transactional_id.encode(), None


def decode(value: bytes) -> TransactionRecord:
    return _decoder.decode(value)
