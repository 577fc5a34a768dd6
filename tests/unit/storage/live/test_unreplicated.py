"""What a leader has staged counts in parts, or is undone."""

from __future__ import annotations

from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import Keyed, StartMoved
from cairnmq.storage.live.unreplicated import put_keyed, take_below, undo
from unit.storage.replica_harness import NOW, Leading, batch


def test_part_of_a_group_is_taken_out() -> None:
    leading = Leading()
    first = leading.put(count=2, write=False)
    leading.put(count=3, write=False)
    leading.path.stage_keyed([Keyed("s", b"a", b"1"), Keyed("s", b"b", b"2")], NOW)
    write = leading.path.take()
    assert write is not None
    whole = (write.group.start, write.group.end)
    part = take_below(write, first)
    assert [staged.end_offset for staged in part.staged] == [2] and part.facts == []
    assert [staged.end_offset for staged in write.staged] == [5] and len(write.facts) == 2
    assert (part.group.start, part.group.end, write.group.start, write.group.end) == (whole[0], first, first, whole[1])
    one, other = (position for _, _, position in write.facts)
    assert first < one < other == whole[1]


def test_undo_is_exact_whatever_was_staged() -> None:
    leading = Leading()
    leading.put(count=3, sequence=0, transactional=True)
    leading.path.replicated_to(leading.end)
    state = leading.queues[1].state
    before = (state.end, state.epochs.copy(), dict(state.producers), dict(state.open_transactions), list(state.aborted))
    leading.path.journal.epoch = 6
    leading.put(sequence=3, transactional=True, write=False)
    leading.path.stage_marker(leading.queues[1], Marker(1, 8, 0, False, 6), NOW)
    leading.put(sequence=4, transactional=True, write=False)
    leading.path.stage_kept(leading.queues[2], [], Span(4, 9), NOW)
    write = leading.path.take()
    assert write is not None
    assert state.aborted and leading.queues[2].state.end == 9
    undo([write])
    after = (state.end, state.epochs, state.producers, state.open_transactions, state.aborted)
    assert after == before
    assert leading.queues[2].state.end == 0


def test_keyed_fact_without_a_value_removes() -> None:
    keyed = {("s", b"a"): b"1"}
    put_keyed(keyed, Keyed("s", b"b", b"2"))
    put_keyed(keyed, Keyed("s", b"a", None))
    put_keyed(keyed, Keyed("s", b"never", None))
    assert keyed == {("s", b"b"): b"2"}


def test_moved_start_counts_when_its_own_entry_is_replicated() -> None:
    leading = Leading()
    end = leading.put(count=5, write=False)
    leading.path.stage_fact(leading.queues[1], StartMoved(2), NOW)
    leading.write()
    leading.path.replicated_to(end)
    assert leading.queues[1].log_start == 0
    leading.path.replicated_to(leading.end)
    assert leading.queues[1].log_start == 2
    assert batch() is not None
