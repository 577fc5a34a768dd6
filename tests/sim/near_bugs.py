"""Bugs of reads from followers, planted one at a time: the simulation must find each within a few seeds."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.replication.follower import JournalFollower
from cairnmq.replication.follower_reads import FollowerReads
from cairnmq.replication.messages import FetchPosition
from cairnmq.storage.files.format import Entry
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.journal_fold import EVERYTHING, JournalFold
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery import replay


def follower_shows_what_it_has_copied(patch: pytest.MonkeyPatch) -> None:
    """Whether the others have it or not."""
    patch.setattr(JournalFold, "takes", lambda fold, entry: entry.queue_id < fold.next_queue)


def follower_shows_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    add = JournalFold.add

    def hasty(fold: JournalFold, entry: Entry, now_ms: int) -> Queue | None:
        fold.durable_end = EVERYTHING
        return add(fold, entry, now_ms)

    patch.setattr(JournalFold, "add", hasty)


def lateness_counts_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    """Which may have been on its way for long."""
    now_ms = 0
    position = JournalFollower.position

    def asks(follower: JournalFollower, *what: object, **more: int) -> FetchPosition:
        nonlocal now_ms
        now_ms = more.get("now_ms", now_ms)
        return position(follower, *what, **more)  # type: ignore[arg-type]

    shows = FollowerReads.shows
    patch.setattr(JournalFollower, "position", asks)
    patch.setattr(FollowerReads, "shows", lambda reads, end, told, asked_ms: shows(reads, end, told, now_ms))


def whoever_gets_a_reply_is_current(patch: pytest.MonkeyPatch) -> None:
    """Though it lacks some of what the leader shows."""
    shows = FollowerReads.shows
    patch.setattr(FollowerReads, "shows", lambda reads, end, told, asked_ms: shows(reads, told, told, asked_ms))


def lateness_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerReads, "may_serve", lambda reads, now_ms, lag_max_ms: reads.lag_ms(now_ms) is not None)


def epoch_of_the_reader_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    refusal = JournalFollower.read_refusal

    def blind(follower: JournalFollower, client_epoch: int, now_ms: int, lag_max_ms: int) -> ErrorCode:
        return refusal(follower, -1, now_ms, lag_max_ms)

    patch.setattr(JournalFollower, "read_refusal", blind)


def next_epoch_is_served_before_its_leader_was_heard(patch: pytest.MonkeyPatch) -> None:
    """As if what was shown in the epoch before were still there."""
    make, last = JournalFollower.__init__, dict[object, FollowerReads]()

    def remember(follower: JournalFollower, me: object, *what: object, **more: object) -> None:
        make(follower, me, *what, **more)  # type: ignore[arg-type]
        follower.reads = last.setdefault(me, follower.reads)

    patch.setattr(JournalFollower, "__init__", remember)


def marker_that_is_hidden_decides(patch: pytest.MonkeyPatch) -> None:
    """The transaction counts as ended, though nobody may see its marker yet."""
    patch.setattr(QueueState, "ends", lambda state, first, marker: None)


def aborted_transactions_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """By a follower."""
    replicated_to = FollowPath.replicated_to

    def forgetful(path: FollowPath, *what: int) -> list[Queue]:
        advanced = replicated_to(path, *what)
        for queue in path._fold.queues.values():
            queue.state.forget_aborted(0, queue.state.end)
        return advanced

    patch.setattr(FollowPath, "replicated_to", forgetful)


def failed_write_comes_back_behind_a_file_that_is_cut(patch: pytest.MonkeyPatch) -> None:
    """In the place of an entry that others have copied; readers have no part in it."""
    patch.setattr(replay, "_cut_overhangs", lambda disk, reader: None)
