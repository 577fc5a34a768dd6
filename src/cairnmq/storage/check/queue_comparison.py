"""verify's comparison of the replicas of one queue: its row, its batches, and what compaction may change of them.

Replicas have the same batches, never the same files: each splits, packs and compacts by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest

from msgspec.structs import replace

from cairnmq.codec.records import decode_batch
from cairnmq.errors import Corrupt
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.check.finding import Finding
from cairnmq.storage.check.replica import Replica, names, odd_ones
from cairnmq.storage.check.stored_queue import Stored, StoredQueue
from cairnmq.storage.files.format import ProducerRow, QueueRow

DIGEST_BYTES = 16
FORGOTTEN_AFTER_MS = BrokerConfig().producer_id_expiration_ms
NOTHING = b""  # the digest of a value that is null

Newest = dict[bytes, tuple[int, bytes]]
"""Key -> offset of its newest record, digest of its value."""


def compare_rows(queue_id: int, replicas: Sequence[Replica]) -> Iterator[Finding]:
    """Of replicas whose checkpoints are at one split position: ends, epochs and producers are the same."""
    rows = [replica.image.queues[queue_id] for replica in replicas]
    start = max((row.log_start for row in rows), default=0)
    yield from _odd(queue_id, replicas, "end", [row.end for row in rows])
    yield from _odd(queue_id, replicas, "epochs", [_epochs(row, start) for row in rows])
    for producer_id in sorted({producer.producer_id for row in rows for producer in row.producers}):
        yield from _compare_producer(queue_id, producer_id, replicas)


def _compare_producer(queue_id: int, producer_id: int, replicas: Sequence[Replica]) -> Iterator[Finding]:
    known = [_producer(replica.image.queues[queue_id], producer_id) for replica in replicas]
    there = [one for one in known if one is not None]
    having = [replica for replica, one in zip(replicas, known, strict=True) if one is not None]
    lacking = [replica for replica, one in zip(replicas, known, strict=True) if one is None]
    silent_ms = max(replica.image.time_ms for replica in replicas) - max(one.timestamp for one in there)
    for replica in lacking if silent_ms < FORGOTTEN_AFTER_MS else ():
        text = f"queue {queue_id}: producer {producer_id} is not in the checkpoint; it is in that of"
        yield Finding(replica.root, f"{text} {names(having, range(len(having)))}")
    count = min(len(one.batches) for one in there)
    compared = [_without_times(one, count) for one in there]
    yield from _odd(queue_id, having, f"producer {producer_id}", compared)


def _producer(row: QueueRow, producer_id: int) -> ProducerRow | None:
    return next((one for one in row.producers if one.producer_id == producer_id), None)


def _epochs(row: QueueRow, start: int) -> tuple[tuple[int, int], ...]:
    """That of the record at `start`, and later ones: where its own log starts, a replica may know older ones."""
    before = [epoch for epoch, first in row.epochs if first <= start]
    later = [(epoch, first) for epoch, first in row.epochs if first > start]
    return ((before[-1], start), *later) if before and start < row.end else tuple(later)


def _without_times(row: ProducerRow, count: int) -> ProducerRow:
    """With its last batches: older ones may be from before it was forgotten."""
    return replace(row, timestamp=0, batches=row.batches[len(row.batches) - count :])


def _odd(queue_id: int, replicas: Sequence[Replica], what: str, said: Sequence[object]) -> Iterator[Finding]:
    most, odd = odd_ones(said)
    for at in odd:
        others = names(replicas, most)
        text = f"queue {queue_id}: {what} {_short(said[at])} in the checkpoint, {_short(said[most[0]])} in that of"
        yield Finding(replicas[at].root, f"{text} {others}")


def _short(said: object) -> str:
    if isinstance(said, ProducerRow):
        return f"with epoch {said.epoch}, batches {said.batches}, open transaction from {said.txn_start}"
    return f"{said}"


def compare_records(queue_id: int, replicas: Sequence[Replica]) -> Iterator[Finding]:
    """Batch by batch from the highest log start; below what one of them has compacted, the newest record per key."""
    logs = [StoredQueue(replica, replica.image.queues[queue_id]) for replica in replicas]
    if len(logs) < 2:
        return
    rewritten = max(log.row.compaction.rewritten_end for log in logs)
    start = max(log.row.log_start for log in logs)
    end = min(log.row.end for log in logs)
    try:
        yield from _compare_batches(queue_id, logs, max(start, rewritten), end)
        if start < rewritten:
            yield from _compare_newest(queue_id, logs, start, end)
    except (Corrupt, OSError):
        return  # the check of that directory alone says what is wrong


def _compare_batches(queue_id: int, logs: list[StoredQueue], start: int, end: int) -> Iterator[Finding]:
    for found in zip_longest(*(log.batches(start, end) for log in logs)):
        most, odd = odd_ones([_identity(stored) for stored in found])
        if not odd:
            continue
        offset = min(stored.header.base_offset for stored in found if stored is not None)
        for at in odd:
            others = names([log.replica for log in logs], most)
            yield Finding(logs[at].place, f"queue {queue_id} differs from {others} at offset {offset}")
        return  # what follows need not be in step


def _identity(stored: Stored | None) -> bytes:
    return stored.data if stored is not None else b""


def _compare_newest(queue_id: int, logs: list[StoredQueue], start: int, end: int) -> Iterator[Finding]:
    """All that a replica stores counts, because a newer record of a key takes the older one's place at any time."""
    newest = [_newest(log, start) for log in logs]
    for one in range(1, len(logs)):
        for at, other in ((one, 0), (0, one)):
            key = next((key for key in newest[other] if _is_amiss(key, newest[other], newest[at], end)), None)
            if key is not None:
                mine = newest[at].get(key)
                have = "no record" if mine is None else f"one at {mine[0]}"
                text = (
                    f"queue {queue_id}: the newest record of key {key[:40]!r} is at offset {newest[other][key][0]} in"
                )
                yield Finding(logs[at].place, f"{text} {logs[other].replica.root}, {have} here")


def _is_amiss(key: bytes, theirs: Newest, ours: Newest, end: int) -> bool:
    """Whether `ours`, which has everything up to offset `end` at least, lacks the newest record of a key."""
    offset, digest = theirs[key]
    mine = ours.get(key)
    if mine is None:
        return offset < end and digest != NOTHING  # a deletion is forgotten some day, by each by itself
    return mine[0] < offset < end or (mine[0] == offset and mine[1] != digest)


def _newest(log: StoredQueue, start: int) -> Newest:
    """Markers, what was aborted, and records without a key are not in it."""
    found: Newest = {}
    aborted = log.aborted()
    for stored in log.batches(start, log.row.end):
        if not stored.header.count or aborted.hold(stored.header):
            continue
        for record in decode_batch(stored.data):
            if record.key is not None and not record.control and record.offset >= start:
                digest = NOTHING if record.value is None else blake2b(record.value, digest_size=DIGEST_BYTES).digest()
                found[record.key] = record.offset, digest
    return found
