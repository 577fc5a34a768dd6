"""What a fetch gives, judged: markers never count, aborted records do not for those who read committed ones."""

from __future__ import annotations

from cairnmq.client.records import Fetched, is_abort
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch


def batch(base: int, pid: int = -1, count: int = 1) -> memoryview:
    records = [Record(0, 5, None, b"v")] * count
    fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": 0, "transactional": True} if pid >= 0 else {}
    return memoryview(build_batch(records, base_offset=base, **fields))  # type: ignore[arg-type]


def marker(base: int, pid: int, kind: int) -> memoryview:
    record = Record(0, 5, bytes((0, 0, 0, kind)), bytes(6), control=True)
    return memoryview(build_batch([record], base_offset=base, producer_id=pid, producer_epoch=0, transactional=True))


def counted(aborted: list[tuple[int, int]], *batches: memoryview) -> list[int]:
    fetched = Fetched("t", 0, 0, 99, 0, batches, 99, tuple(aborted))
    return [read_header(each).base_offset for each, counts in fetched.judged() if counts]


def test_markers_never_count() -> None:
    assert counted([], batch(0), batch(1, 7), marker(2, 7, 0), marker(3, 7, 1), batch(4)) == [0, 1, 4]


def test_aborted_records_do_not_count_up_to_their_marker() -> None:
    log = [batch(0), batch(1, 7, 2), batch(3, 8), marker(4, 7, 0), batch(5, 7), marker(6, 8, 1), marker(7, 7, 1)]
    assert counted([(7, 1)], *log) == [0, 3, 5]
    assert counted([(8, 3), (7, 1)], *log[:6]) == [0, 5]


def test_a_transaction_that_began_before_the_first_batch() -> None:
    assert counted([(7, 1)], batch(10, 7), marker(11, 7, 0), batch(12, 7)) == [12]


def test_two_aborted_transactions_of_one_producer() -> None:
    log = [batch(0, 7), marker(1, 7, 0), batch(2, 7), marker(3, 7, 1), batch(4, 7), marker(5, 7, 0)]
    assert counted([(7, 0), (7, 4)], *log) == [2]


def test_a_batch_outside_of_transactions_counts() -> None:
    plain = memoryview(
        build_batch([Record(0, 5, None, b"v")], base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0)
    )
    assert counted([(7, 0)], batch(0, 7), plain) == [1]


def test_is_abort() -> None:
    assert is_abort(marker(0, 7, 0)) and not is_abort(marker(0, 7, 1))
