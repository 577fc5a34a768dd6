"""A queue's row from its records, and what an older row adds to it."""

from __future__ import annotations

from collections.abc import Sequence

from cairnmq.codec.batch import hollow_batch, read_header, set_offset_and_epoch
from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.batches.markers import Marker, marker_batch
from cairnmq.storage.checkpoint_repair.file_survey import Stored
from cairnmq.storage.checkpoint_repair.offset_ranges import OffsetRanges
from cairnmq.storage.checkpoint_repair.rebuilt_row import fold, rebuilt_row
from cairnmq.storage.checkpoint_repair.record_places import QueuePlace
from cairnmq.storage.files.format import NO_SEGMENTS, Aborted, ProducerRow, QueueRow, txn_index_bytes
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.txn_index import NO_ROWS, sum_with

NOW = 10_000
DAY = 86_400_000
EPOCH_MAX = 5


def stored(offset: int, *, epoch: int = 1, pid: int = -1, transactional: bool = False, date_ms: int = NOW) -> Stored:
    """A batch of one record; its sequence is its offset."""
    sequence = offset if pid >= 0 else -1
    data = bytearray(
        build_batch(
            [Record(0, NOW, b"k", b"v")],
            producer_id=pid,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    set_offset_and_epoch(data, offset, epoch)
    return Stored(data, date_ms)


def marker(offset: int, pid: int, *, commit: bool) -> Stored:
    data = bytearray(marker_batch(Marker(1, pid, 0, commit, 0), NOW))
    set_offset_and_epoch(data, offset, 1)
    return Stored(data, NOW)


def hollow(batch: Stored) -> Stored:
    """As compaction leaves it."""
    header = read_header(batch.data)
    data = hollow_batch(header, NOW)
    set_offset_and_epoch(data, header.base_offset, header.leader_epoch)
    return Stored(data, NOW)


def row_of(
    batches: Sequence[Stored],
    *,
    segments: Sequence[int] = (),
    old: QueueRow | None = None,
    log_start: int = 0,
    stored_aborted: dict[int, list[Aborted]] | None = None,
    compacted: bool = False,
    end: int | None = None,
) -> QueueRow:
    limit = read_header(batches[-1].data).last_offset + 1 if batches else 0
    place = QueuePlace(segments[0] if segments else NO_SEGMENTS, list(segments), held=OffsetRanges([(0, limit)]))
    end = limit if end is None else end
    return rebuilt_row(
        1,
        fold(batches, end, EPOCH_MAX),
        old,
        place,
        log_start=log_start,
        end=end,
        packed_bytes=0,
        compacted=compacted,
        stored_aborted=stored_aborted or {},
        now_ms=NOW,
        expiration_ms=DAY,
    )


def test_the_fold_is_that_of_the_broker() -> None:
    batches = [stored(0, pid=9), stored(1, epoch=2), stored(2, epoch=2, pid=9)]
    state = QueueState()
    for batch in batches:
        state.apply_batch(batch.data, NOW)
    assert fold(batches, 3, EPOCH_MAX) == state
    assert fold([*batches, stored(3)], 3, EPOCH_MAX) == state, "what lies after the end does not count"


def test_a_wrong_leader_epoch_is_not_believed() -> None:
    """It has no checksum; if it were, no later batch could be read."""
    assert row_of([stored(0), stored(1, epoch=4), stored(2, epoch=2), stored(3, epoch=2)]).epochs == ((1, 0), (2, 1))
    assert row_of([stored(0), stored(1, epoch=1 << 30)]).epochs == ((1, 0), (EPOCH_MAX, 1))


def test_a_batch_without_records_opens_no_transaction() -> None:
    """The marker after it may be gone."""
    batch = stored(0, pid=9, transactional=True)
    assert fold([batch], 1, EPOCH_MAX).open_transactions == {9: 0}
    state = fold([hollow(batch)], 1, EPOCH_MAX)
    assert not state.open_transactions and 9 in state.producers


def test_aborted_transactions_are_in_the_row_as_far_as_they_lie_in_packs() -> None:
    batches = [
        stored(0, pid=9, transactional=True),
        marker(1, 9, commit=False),
        stored(2, pid=9, transactional=True),
        marker(3, 9, commit=False),
        stored(4, pid=9, transactional=True),
        marker(5, 9, commit=True),
    ]
    one, two = Aborted(9, 0, 1, 2), Aborted(9, 2, 3, 4)
    assert row_of(batches).aborted == (one, two)
    row = row_of(batches, segments=[2, 4], stored_aborted={2: [two]})
    assert row.aborted == (one,) and row.row_sums == ((2, sum_with(NO_ROWS, txn_index_bytes([two]))),)


def test_a_txnindex_that_is_wrong_gets_the_sum_of_what_the_records_say() -> None:
    """So that the broker sees the damage, and repairs it."""
    batches = [stored(0), stored(1, pid=9, transactional=True), marker(2, 9, commit=False)]
    right = Aborted(9, 1, 2, 3)
    wanted = ((0, sum_with(NO_ROWS, txn_index_bytes([right]))),)
    for rows in ([right], [], [Aborted(8, 1, 2, 3)], [Aborted(9, 0, 2, 3)]):
        assert row_of(batches, segments=[0], stored_aborted={0: rows}).row_sums == wanted


def test_what_only_the_older_row_knows_is_kept() -> None:
    gone = ProducerRow(7, 3, NOW, ((0, 0, 0),))
    old = QueueRow(1, 1, 2, ((0, 0), (1, 1)), (gone, ProducerRow(9, 0, NOW, ((5, 5, 1),))))
    row = row_of([stored(2, pid=9), stored(3, epoch=2)], old=old, log_start=1)
    assert {producer.producer_id: producer.batches for producer in row.producers} == {
        7: gone.batches,
        9: ((2, 2, 2),),
    }
    assert row.epochs == ((1, 1), (2, 3)) and (row.log_start, row.end) == (1, 4)


def test_of_an_older_row_no_transaction_stays_open_that_is_deleted() -> None:
    open_since = ProducerRow(7, 3, NOW, ((0, 0, 0),), -1, 0)
    row = row_of([stored(2)], old=QueueRow(1, 0, 1, producers=(open_since,)), log_start=1)
    assert [producer.txn_start for producer in row.producers] == [-1]


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    assert row_of([stored(0, pid=9, date_ms=NOW - DAY)]).producers == ()


def test_a_compacted_log_is_never_filled_from_journals() -> None:
    assert row_of([stored(0), stored(1)]).compaction.rewritten_end == 0
    row = row_of([stored(0), stored(1)], compacted=True)
    assert (row.compaction.rewritten_end, row.compaction.clean_end) == (2, 0)
