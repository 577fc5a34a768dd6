"""Idempotent producers on one queue: accept, duplicate, gap or fence. Pure; states are values, so undo is free."""

from __future__ import annotations

from types import MappingProxyType
from typing import cast

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.files.format import ProducerRow

BATCHES_KEPT = 5  # what clients may have in flight
SEQUENCE_MAX = 0x7FFFFFFF

Producers = dict[int, ProducerRow]
NO_PRODUCERS = cast(Producers, MappingProxyType({}))  # one for all idle queues; writing to it fails


class Duplicate(Struct, frozen=True, gc=False):
    """The batch is already stored at this base offset: answered with success, not stored again."""

    base_offset: int


def last_sequence(first: int, count: int) -> int:
    """Sequences wrap to 0 after 2^31-1."""
    return (first + count - 1) & SEQUENCE_MAX


def check(
    known: ProducerRow | None, epoch: int, first: int, count: int, transactional: bool = False
) -> Duplicate | Refusal | None:
    """None means: take it. Duplicates are looked for before sequences, as Kafka does."""
    if known is None:
        return None  # state expired, or a new producer: any sequence is a start
    if epoch < known.epoch:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer epoch {epoch} is older than {known.epoch}")
    if epoch > known.epoch:
        if first != 0:
            return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"new epoch {epoch} must start at 0, not {first}")
    else:
        last = last_sequence(first, count)
        for known_first, known_last, base_offset in known.batches:
            if known_first == first and known_last == last:
                return Duplicate(base_offset)
        # without a batch, a marker began the epoch
        expected = (known.batches[-1][1] + 1) & SEQUENCE_MAX if known.batches else 0
        if first != expected:
            return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {first} where {expected} was expected")
    if known.txn_start >= 0 and not transactional:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "batch is not part of the producer's open transaction")
    return None


def after(
    known: ProducerRow | None,
    producer_id: int,
    epoch: int,
    first: int,
    count: int,
    offset: int,
    timestamp: int,
    transactional: bool = False,
) -> ProducerRow:
    """The state once this batch is stored."""
    batch = (first, last_sequence(first, count), offset)
    if known is None:
        return ProducerRow(producer_id, epoch, timestamp, (batch,), -1, offset if transactional else -1)
    kept = known.batches[1 - BATCHES_KEPT :] if known.epoch == epoch else ()
    start = offset if transactional and known.txn_start < 0 else known.txn_start
    return ProducerRow(producer_id, epoch, timestamp, (*kept, batch), known.coordinator_epoch, start)


def after_marker(
    known: ProducerRow | None, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int
) -> ProducerRow:
    """The state once its transaction is ended; a higher epoch begins without a batch."""
    kept = known.batches if known is not None and known.epoch == epoch else ()
    return ProducerRow(producer_id, epoch, timestamp, kept, coordinator_epoch)


def live(producers: Producers, now_ms: int, expiration_ms: int) -> Producers:
    """Without those that were silent for too long. An open transaction keeps its producer, as in Kafka."""
    kept = {pid: row for pid, row in producers.items() if row.txn_start >= 0 or now_ms - row.timestamp < expiration_ms}
    return kept or NO_PRODUCERS
