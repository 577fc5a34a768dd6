"""A queue's row of the checkpoint, made again from its records and from an older row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, read_header
from cairnmq.storage.check.aborted_check import compare_aborted
from cairnmq.storage.checkpoint_repair.file_survey import Stored
from cairnmq.storage.checkpoint_repair.record_places import QueuePlace
from cairnmq.storage.files.format import Aborted, CompactionRow, ProducerRow, QueueRow, RowSum, txn_index_bytes
from cairnmq.storage.queue.producers import live
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.txn_index import NO_ROWS, sum_with


def fold(batches: Iterable[Stored], end: int, epoch_max: int) -> QueueState:
    """The state that batches below offset `end` give. Their leader epochs have no checksum: what is above the next
    one's, or above `epoch_max`, is not true."""
    state = QueueState()
    for header, epoch, batch in _with_epochs(batches, epoch_max):
        if header.base_offset < state.end or header.last_offset >= end:
            continue
        attributes = header.attributes
        if not header.count and not attributes & CONTROL_BIT:
            # Compaction may leave a producer's last batch without records, and take the marker after it away.
            attributes &= ~TRANSACTIONAL_BIT
        state.apply(
            header.base_offset,
            header.last_offset,
            epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            batch.date_ms,
            attributes,
            batch.data,
        )
    return state


def _with_epochs(batches: Iterable[Stored], epoch_max: int) -> Iterator[tuple[BatchHeader, int, Stored]]:
    before: tuple[BatchHeader, Stored] | None = None
    for batch in batches:
        header = read_header(batch.data)
        if before is not None:
            yield before[0], min(before[0].leader_epoch, header.leader_epoch, epoch_max), before[1]
        before = header, batch
    if before is not None:
        yield before[0], min(before[0].leader_epoch, epoch_max), before[1]


def rebuilt_row(
    queue_id: int,
    state: QueueState,
    old: QueueRow | None,
    place: QueuePlace,
    *,
    log_start: int,
    end: int,
    packed_bytes: int,
    compacted: bool,
    stored_aborted: Mapping[int, Sequence[Aborted]],
    now_ms: int,
    expiration_ms: int,
) -> QueueRow:
    """`stored_aborted`: by segment, what its `.txnindex` says of markers below the end."""
    first = place.held.start if place.held else end
    state.end = max(state.end, end)
    if old is not None:
        _add_old(state, old, log_start)
    state.move_start(log_start)
    state.producers = live(state.producers, now_ms, expiration_ms)
    rewritten = end if compacted or place.rewritten else 0
    if old is not None:
        rewritten = max(rewritten, min(old.compaction.rewritten_end, end))
    packed_end = place.packed_end(end)
    row_sums = dict(_row_sums(place, state.aborted, stored_aborted, max(first, rewritten), log_start, end))
    state.forget_aborted(packed_end, state.end)
    return state.to_row(queue_id, place.segments_from, packed_bytes, CompactionRow(0, rewritten, place.swaps), row_sums)


def _add_old(state: QueueState, old: QueueRow, log_start: int) -> None:
    """What the records do not say any more: producers whose batches are deleted, and epochs before the first batch."""
    for row in old.producers:
        found = state.producers.get(row.producer_id)
        if found is None or found.epoch < row.epoch:
            kept = row if row.txn_start >= log_start else replace(row, txn_start=-1)
            state.producers = {**state.producers, row.producer_id: _open_as(kept, found)}
    if not state.epochs:
        state.epochs = list(old.epochs)
        return
    epoch, first = state.epochs[0]
    before = [pair for pair in old.epochs if pair[0] <= epoch and pair[1] < first]
    state.epochs = [*before, *(state.epochs[1:] if before and before[-1][0] == epoch else state.epochs)]


def _open_as(row: ProducerRow, found: ProducerRow | None) -> ProducerRow:
    """A transaction is open as the records say, if they say anything of the producer."""
    return row if found is None else replace(row, txn_start=found.txn_start)


def _row_sums(
    place: QueuePlace,
    replayed: Sequence[Aborted],
    stored: Mapping[int, Sequence[Aborted]],
    first: int,
    log_start: int,
    end: int,
) -> Iterator[tuple[int, RowSum]]:
    """Sums of the `.txnindex` files as they should be. One that does not say what the records do gets the sum of what
    they say: that is damage then, which the broker repairs. Of one that is in the middle of a swap nothing is said."""
    unfinished = {swap[0] for swap in place.swaps}
    for base, following in place.bounds(end):
        if base in unfinished:
            continue
        start = max(base, log_start)
        wanted = [row for row in replayed if start <= row.last < following]
        rows = stored.get(base, ())
        if any(compare_aborted((row for row in rows if row.last >= start), wanted, first)):
            rows = wanted
        if rows:
            yield base, sum_with(NO_ROWS, txn_index_bytes(rows))
