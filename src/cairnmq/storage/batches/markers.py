"""Transaction markers: Kafka's control batches that end a transaction on one queue. Made and read here. Pure."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from cairnmq.codec.batch import HEADER_SIZE
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.files.format import MARKER_KEY, MARKER_VALUE, ProducerRow
from cairnmq.types import Buffer

ABORT, COMMIT = 0, 1  # types of control records that end a transaction
BUMPS_EPOCH_SINCE = 2  # of transaction versions

# Length, attributes, two deltas of zero and the length of the key: how the record of each of our markers begins.
_BEGINS = bytes((2 * 16, 0, 0, 0, 2 * MARKER_KEY.size))
_KEY_AT = HEADER_SIZE + len(_BEGINS)
_VALUE_AT = _KEY_AT + MARKER_KEY.size + 1
_SIZE = _VALUE_AT + MARKER_VALUE.size + 1


class Marker(Struct, frozen=True):
    """The end of one producer's transaction on one queue.

    Of transaction version 2 `producer_epoch` is above that of the transaction's records, so a late one is recognised.
    """

    queue_id: int
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 1


def marker_batch(marker: Marker, now_ms: int) -> bytearray:
    """Byte for byte what Apache Kafka writes; offset and leader epoch are patched when it is staged."""
    return bytearray(
        _marker_bytes(marker.producer_id, marker.producer_epoch, marker.commit, marker.coordinator_epoch, now_ms)
    )


@lru_cache(maxsize=16)  # a transaction has the same one on all its queues
def _marker_bytes(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now_ms: int) -> bytes:
    key = MARKER_KEY.pack(0, COMMIT if commit else ABORT)
    value = MARKER_VALUE.pack(0, coordinator_epoch)
    record = Record(offset=0, timestamp=now_ms, key=key, value=value, control=True)
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, transactional=True)


def check_marker(known: ProducerRow | None, marker: Marker, epoch: int | None) -> bool | Refusal:
    """True: it is to be stored. False: it repeats one that is. `known` is what the queue knows of the producer.

    `epoch` is that of the one coordinator there is. Whatever a queue has heard, markers of this epoch are not fenced.
    None: there are several, and only what the queue has heard counts. So the first marker of a later coordinator is
    stored also where it repeats one: else a late one of the coordinator before could end the next transaction.
    """
    heard = known.coordinator_epoch if known is not None else -1
    is_first_of_later = epoch is None and marker.coordinator_epoch > heard
    if epoch is None:
        epoch = max(marker.coordinator_epoch, heard)
    if marker.coordinator_epoch > max(epoch, heard):
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker of coordinator epoch {marker.coordinator_epoch}, which is not in use yet: it is {epoch}",
        )
    if known is None:
        return True  # it fences the producer's older epochs
    if marker.producer_epoch < known.epoch:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"marker of epoch {marker.producer_epoch}, older than {known.epoch}"
        )
    if marker.coordinator_epoch < min(epoch, heard):
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker of coordinator epoch {marker.coordinator_epoch}, older than {known.coordinator_epoch}",
        )
    if marker.producer_epoch > known.epoch:
        return True
    if known.txn_start >= 0 and marker.transaction_version >= BUMPS_EPOCH_SINCE:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"marker of epoch {known.epoch}, in which a later transaction is open"
        )
    return known.txn_start >= 0 or is_first_of_later


def read_marker(batch: Buffer) -> tuple[bool, int] | None:
    """(whether it commits, coordinator epoch) of a control batch; None if it ends no transaction."""
    if len(batch) == _SIZE and batch[HEADER_SIZE:_KEY_AT] == _BEGINS:
        kind, epoch = MARKER_KEY.unpack_from(batch, _KEY_AT)[1], MARKER_VALUE.unpack_from(batch, _VALUE_AT)[1]
    else:
        try:
            record = next(decode_batch(batch, check_crc=False), None)
        except Undecodable:
            return None
        if record is None or record.key is None or len(record.key) < MARKER_KEY.size:
            return None
        kind = MARKER_KEY.unpack_from(record.key)[1]
        whole = record.value is not None and len(record.value) >= MARKER_VALUE.size
        epoch = MARKER_VALUE.unpack_from(record.value)[1] if whole and record.value is not None else -1
    return (kind == COMMIT, epoch) if kind in (ABORT, COMMIT) else None
