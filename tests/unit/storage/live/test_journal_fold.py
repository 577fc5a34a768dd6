"""The fold of a start and of a follower."""

from __future__ import annotations

from collections.abc import Iterator

from cairnmq.storage.files.format import Entry, Keyed
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.live.journal_fold import JournalFold
from unit.storage.replica_harness import NOW, Leading, queue_of


def entries_of(leading: Leading) -> Iterator[Entry]:
    yield from JournalReader(leading.disk, 0).entries(0, leading.end)


def test_it_takes_what_is_replicated_and_of_a_known_queue() -> None:
    leading = Leading()
    end = leading.put(queue=1)
    leading.put(queue=2)
    entries = list(entries_of(leading))
    assert [JournalFold(0, {}, {}, 0, limit=end).takes(entry) for entry in entries] == [True, True, False]
    assert [JournalFold(0, {}, {}, 0, next_queue=2).takes(entry) for entry in entries] == [True, True, False]


def test_everything_is_folded_and_shown_with_one_replica() -> None:
    leading = Leading()
    leading.put(count=3)
    leading.path.stage_keyed([Keyed("s", b"a", b"1")], NOW)
    leading.put(count=2)
    queue = queue_of(1)
    fold = JournalFold(3, {1: queue}, {}, 0)
    advanced = [fold.add(entry, NOW) for entry in entries_of(leading)]
    assert [each for each in advanced if each is not None] == [queue, queue]
    assert (queue.end, queue.high_watermark, queue.journal, fold.batches) == (5, 5, 3, 2)
    assert fold.keyed == {("s", b"a"): b"1"} and fold.position == leading.end


def test_deleted_queue_is_counted_and_skipped() -> None:
    leading = Leading()
    leading.put(queue=2)
    fold = JournalFold(0, {}, {}, 0)
    for entry in entries_of(leading):
        fold.add(entry, NOW)
    assert fold.batches == 1 and fold.position == leading.end and not fold.gaps


def test_gap_is_kept_and_ends_its_queue() -> None:
    leading = Leading()
    leading.put(count=3)
    leading.put(count=3)
    queue = queue_of(1)
    queue.state.end = 2
    fold = JournalFold(0, {1: queue}, {}, 0)
    for entry in entries_of(leading):
        fold.add(entry, NOW)
    assert list(fold.gaps) == [1] and queue.state.end == 2 and queue.tail is None
