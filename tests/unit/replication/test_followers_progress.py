"""What a leader remembers of its followers' requests."""

from __future__ import annotations

from cairnmq.replication.followers_progress import FollowersProgress, Progress
from cairnmq.replication.messages import FetchPosition
from cairnmq.replication.records import Member

B, LATER_B = Member(2, 12), Member(2, 15)


def asked(member: Member, end: int, synced: int) -> FetchPosition:
    return FetchPosition(member, 5, end, 5, synced)


def test_the_position_of_one_life_says_nothing_of_the_next() -> None:
    progress = FollowersProgress(0)
    assert progress.ends_of(B) is None and progress.of(2, 100, 10) == Progress(2)
    progress.count(asked(B, 60, 50), 100, 10)
    assert progress.ends_of(B) == (60, 50) and progress.ends_of(LATER_B) is None
    progress.count(asked(LATER_B, 40, 40), 100, 20)
    assert progress.ends_of(LATER_B) == (40, 40) and progress.ends_of(B) is None


def test_a_request_that_was_overtaken_takes_nothing_back() -> None:
    progress = FollowersProgress(0)
    progress.count(asked(B, 60, 50), 100, 10)
    progress.count(asked(B, 40, 40), 100, 20)
    progress.count(asked(B, 60, 40), 100, 30)
    assert progress.ends_of(B) == (60, 50)


def test_who_has_what_the_leader_had_when_it_asked_before_was_caught_up_then() -> None:
    progress = FollowersProgress(0)
    progress.count(asked(B, 60, 0), 100, 10)
    assert progress.caught_up_ms(B) == 0 and progress.of(2, 100, 30).lag_ms == 30
    progress.count(asked(B, 100, 0), 140, 20)
    assert progress.caught_up_ms(B) == 10
    progress.count(asked(B, 140, 0), 140, 40)
    assert progress.caught_up_ms(B) == 40 and progress.of(2, 140, 50) == Progress(2, 140, 0, 0)
