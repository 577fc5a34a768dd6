"""A follower's journal: copied, cut, folded up to the replicated end; elected, and back."""

from __future__ import annotations

import errno

import pytest

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import Keyed, StartMoved
from cairnmq.storage.live import follow_path
from cairnmq.storage.live.ack_policy import DURABLE, AckPoint
from cairnmq.storage.live.follow_path import FollowPath, demoted
from cairnmq.storage.live.write_path import WritePath
from unit.storage.replica_harness import NOW, Following, Leading, batch


@pytest.fixture
def leading() -> Leading:
    return Leading()


@pytest.fixture
def following() -> Following:
    return Following()


def elected(following: Following, epoch: int) -> WritePath:
    path = following.path.promoted(epoch, NOW)
    assert path is not None
    return path


def content(path: FollowPath | WritePath) -> bytes:
    return b"".join(each.file.read(0, each.size) for each in path.journal.segments)


def test_bytes_are_copied_as_they_are(leading: Leading, following: Following) -> None:
    for count in range(1, 6):
        leading.put(count=count, queue=1 + count % 2)
    leading.path.journal.begin_segment()
    leading.put()
    data = leading.content()
    while following.end < leading.end:
        following.copy(data[following.end : following.end + 400])
    assert content(following.path) == bytes(data)
    journal = following.path.journal
    assert [each.base for each in journal.segments] == [each.base for each in leading.path.journal.segments]
    assert (journal.seed, journal.epoch) == (9, 4)


def test_nothing_counts_above_the_replicated_end(leading: Leading, following: Following) -> None:
    first = leading.put(count=3)
    leading.put(count=2)
    following.follow(leading, replicated=first)
    queue = following.queues[1]
    assert (queue.state.end, queue.end, following.path.folded_end) == (3, 3, first)
    assert queue.tail is not None and len(queue.tail) == 1 and following.path.unsplit_entries == 1
    following.follow(leading)
    assert (queue.state.end, len(queue.tail)) == (5, 2)


def test_a_record_is_visible_once_it_is_durable(leading: Leading, following: Following) -> None:
    first = leading.put(count=3)
    leading.put(count=2)
    following.follow(leading)
    queue = following.queues[1]
    assert queue.high_watermark == 0
    assert following.path.replicated_to(0, first, NOW) == [queue] and queue.high_watermark == 3
    assert following.path.splittable() == 0, "its own disk does not have it"
    following.path.synced_to(following.path.sync())
    assert following.path.splittable() == first


def test_a_transaction_is_open_until_its_marker_is_visible(leading: Leading, following: Following) -> None:
    leading.put(sequence=0, transactional=True)
    leading.path.stage_marker(leading.queues[1], Marker(1, 8, 0, True, 4), NOW)
    leading.write()
    following.follow(leading)
    queue = following.queues[1]
    assert (queue.end, queue.last_stable) == (2, 0)
    following.path.replicated_to(0, following.end, NOW)
    assert (queue.high_watermark, queue.last_stable) == (2, 2)


def test_keyed_facts_and_moved_starts_are_folded(leading: Leading, following: Following) -> None:
    leading.put(count=5)
    leading.path.stage_fact(leading.queues[1], StartMoved(3), NOW)
    leading.path.stage_keyed([Keyed("s", b"a", b"1"), Keyed("s", b"b", b"2"), Keyed("s", b"a", None)], NOW)
    leading.write()
    following.follow(leading)
    assert following.queues[1].log_start == 3 and following.keyed == {("s", b"b"): b"2"}


def test_what_waits_does_not_need_the_bytes_that_it_came_in(leading: Leading, following: Following) -> None:
    """They arrive in memory that is used again."""
    leading.put(sequence=0, transactional=True)
    leading.path.stage_marker(leading.queues[1], Marker(1, 8, 0, True, 4), NOW)
    leading.put(count=5)
    leading.path.stage_fact(leading.queues[1], StartMoved(3), NOW)
    leading.path.stage_keyed([Keyed("s", b"a", b"1")], NOW)
    leading.write()
    arrived = bytearray(leading.content())
    following.copy(memoryview(arrived))
    arrived[:] = b"\xff" * len(arrived)
    following.path.replicated_to(following.end, following.end, NOW)
    queue = following.queues[1]
    assert (queue.log_start, queue.end, queue.last_stable) == (3, 7, 7) and following.keyed == {("s", b"a"): b"1"}
    assert content(following.path) == bytes(leading.content())


def test_unknown_queue_is_waited_for() -> None:
    leading, following = Leading(), Following(next_queue=2)
    first = leading.put(queue=1)
    leading.put(queue=2)
    leading.put(queue=1)
    following.follow(leading, durable=leading.end)
    assert following.path.folded_end == first and following.queues[1].end == 1
    following.path.synced_to(following.path.sync())
    assert following.path.splittable() == first, "what is not folded is not split"
    assert following.path.promoted(5, NOW) is None
    following.path.knows_queues(3, NOW)
    assert following.path.folded_end == leading.end and following.queues[1].end == 2, "queue 2 was deleted"


def test_what_waits_is_read_again_when_it_is_too_much_to_keep(
    leading: Leading, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_path, "UNFOLDED_BYTES_MAX", 300)
    ends = [leading.put(count=2) for _ in range(8)]
    for end in ends:
        following.copy(leading.content(following.end)[: end - following.end])
    for end in ends:
        following.path.replicated_to(end, 0, NOW)
        assert following.path.folded_end == end
    assert following.queues[1].end == 16


def test_what_does_not_read_back_is_named(leading: Leading, following: Following) -> None:
    leading.put()
    following.copy(leading.content())
    following.restarted(following.disk.kill(), replicated=0)
    following.disk.damage("0/00000000000000000000.jnl", 100)
    with pytest.raises(Corrupt, match="position 60 was written and cannot be read"):
        following.path.replicated_to(leading.end, 0, NOW)


def test_queue_that_does_not_go_on_is_named(leading: Leading, following: Following) -> None:
    leading.put(count=3)
    following.queues[1].state.end = 1
    with pytest.raises(Corrupt, match="continues at offset 0 instead of 1"):
        following.follow(leading)


def test_failed_write_is_asked_for_again(leading: Leading, following: Following) -> None:
    leading.put()
    leading.path.journal.begin_segment()
    leading.put()
    data = leading.content()
    copy = following.path.take(data, 4, NOW)
    assert copy is not None and len(copy.groups) == 2
    following.disk.faults[following.disk.operations + 4] = errno.ENOSPC  # the second file's bytes
    with pytest.raises(OSError):
        following.path.write(copy)
    following.disk.faults.clear()
    following.path.failed(copy, "no space")
    assert following.end == copy.groups[0][0].end
    following.copy(data[following.end :])
    assert content(following.path) == bytes(data)


def test_cut_forgets_what_was_not_replicated(leading: Leading, following: Following) -> None:
    first = leading.put(count=3)
    leading.put(count=2)
    following.follow(leading, replicated=first)
    following.path.cut(first, 4, 9)
    assert following.end == first and following.queues[1].state.end == 3
    other = Leading(epoch=7)
    other.path.journal.end = other.path.journal.staged_end = first
    other.queues[1].state.end = 3
    other.put(count=1)
    following.copy(other.content(), 7)
    following.path.replicated_to(other.end, 0, NOW)
    assert following.queues[1].state.epochs == [(4, 0), (7, 3)]


def test_cut_below_the_replicated_end_is_refused(leading: Leading, following: Following) -> None:
    first = leading.put()
    leading.put()
    following.follow(leading)
    with pytest.raises(Fault, match=f"cannot be cut at {first}"):
        following.path.cut(first, 4, 9)


def test_start_folds_up_to_the_end_that_was_stored(leading: Leading, following: Following) -> None:
    first = leading.put(count=3)
    leading.put(count=2)
    following.follow(leading)
    following.restarted(following.disk.kill(), replicated=first)
    assert following.end == leading.end and following.path.folded_end == first
    assert (following.queues[1].state.end, following.queues[1].high_watermark) == (3, 0)
    following.path.replicated_to(leading.end, leading.end, NOW)
    assert (following.queues[1].state.end, following.queues[1].high_watermark) == (5, 5)


def test_claims_of_the_leader_are_about_its_own_disk(leading: Leading, following: Following) -> None:
    """Found by looking at a torn tail: the follower took it for damage, and stopped."""
    leading.put()
    leading.put(count=4)
    leading.path.synced_to(leading.path.sync())
    leading.put()
    following.follow(leading)
    whole, place = following.end, 100
    following.disk.damage("0/00000000000000000000.jnl", place)
    following.restarted(following.disk.kill(), replicated=0)
    assert following.end < place < whole


def test_after_a_start_a_new_file_begins_also_without_a_head(leading: Leading, following: Following) -> None:
    leading.put()
    following.follow(leading)
    middle = following.end
    following.restarted(following.disk.kill(), replicated=middle)
    leading.put()
    following.follow(leading)
    assert [each.base for each in following.path.journal.segments] == [0, middle]
    assert content(following.path) == bytes(leading.content())


def test_election_folds_the_rest_and_begins_a_segment(leading: Leading, following: Following) -> None:
    first = leading.put(count=3, sequence=0)
    leading.put(count=2, sequence=3)
    following.follow(leading, replicated=first)
    path = elected(following, 6)
    queue = following.queues[1]
    assert (queue.state.end, queue.end) == (5, 3), "its state has all, nobody sees more"
    assert path.sync_by_ms is None
    head = path.take()
    assert head is not None and head.group.rolls
    path.write(head)
    path.written(head)
    assert path.sync_by_ms == NOW and path.journal.epoch == 6
    placed = path.stage(queue, batch(2, 5), -1, NOW)
    assert placed.base_offset == 5  # type: ignore[union-attr]
    path.replicated_to(path.journal.end)
    assert queue.end == 5 and path.unsplit_entries == 2


def test_election_counts_batches_of_deleted_queues(leading: Leading, following: Following) -> None:
    """The splitter reports them as passed."""
    leading.put(queue=2)
    leading.put(queue=1)
    following.follow(leading, replicated=0)
    del following.queues[2]
    path = elected(following, 6)
    assert path.unsplit_entries == 0
    path.replicated_to(leading.end)
    assert path.unsplit_entries == 2


def test_start_that_an_earlier_leader_moved_is_told_once_it_is_durable(leading: Leading, following: Following) -> None:
    """Until then a power loss of all may take it back."""
    leading.put(count=3)
    moved = leading.path.stage_fact(leading.queues[1], StartMoved(2), NOW)
    leading.write()
    following.follow(leading)
    path, queue = elected(following, 6), following.queues[1]
    assert queue.log_start == 2
    point = path.stage_start(queue, 2, NOW)
    assert isinstance(point, AckPoint) and point.level is DURABLE and point.end == moved


def test_cut_that_the_disk_refused_is_made_again(leading: Leading, following: Following) -> None:
    first = leading.put()
    leading.put()
    following.follow(leading, replicated=first)
    following.disk.faults[following.disk.operations + 3] = errno.EIO
    with pytest.raises(OSError):
        following.path.cut(first, 4, 9)
    following.disk.faults.clear()
    following.path.cut(first, 4, 9)
    assert following.end == first
    following.follow(leading)
    assert following.path.folded_end == leading.end and following.queues[1].state.end == 2


def test_demotion_gives_the_state_of_the_replicated_end(leading: Leading, following: Following) -> None:
    first = leading.put(count=3, sequence=0)
    leading.put(count=2, sequence=3)
    following.follow(leading, replicated=first)
    queue = following.queues[1]
    before = (queue.state.end, queue.state.epochs.copy(), dict(queue.state.producers))
    path = elected(following, 6)
    head = path.take()
    assert head is not None
    path.write(head)
    path.written(head)
    path.stage(queue, batch(1, 5), -1, NOW)
    back = demoted(path, following.queues, 3, "broker 2 leads")
    assert (queue.state.end, queue.state.epochs, queue.state.producers) == before
    assert back.folded_end == first and back.journal.staged_end == back.journal.end > first
    back.replicated_to(leading.end, 0, NOW)
    assert queue.state.end == 5


def test_an_epoch_whose_head_was_never_written_leaves_no_trace(leading: Leading, following: Following) -> None:
    """The next leader may go on in the epoch before, which this replica has only in part."""
    leading.put(sequence=0)
    following.follow(leading, replicated=0)
    leading.put(sequence=1)
    path = elected(following, 6)
    following.path = demoted(path, following.queues, 3, "its disk refused the head, and broker 2 leads")
    assert following.path.journal.epoch == 4
    following.follow(leading)
    assert following.end == leading.end and following.queues[1].state.end == 2


def test_election_fails_without_a_trace(leading: Leading, following: Following) -> None:
    leading.put(count=3, sequence=0)
    leading.put(count=2, queue=2)
    following.follow(leading, replicated=0)
    following.queues[2].state.end = 7
    with pytest.raises(Corrupt):
        following.path.promoted(6, NOW)
    assert following.queues[1].state.end == 0 and not following.queues[1].state.producers


def test_stopped_journal_is_not_elected_and_stays_stopped(leading: Leading, following: Following) -> None:
    leading.path.refuse("the disk is full")
    back = demoted(leading.path, leading.queues, 3, "broker 2 leads")
    assert back.stopped == "the disk is full"
    assert back.promoted(9, NOW) is None
