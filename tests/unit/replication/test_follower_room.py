"""Which part of the journal followers still need, and which of them make producers wait."""

from __future__ import annotations

from cairnmq.replication.follower_room import FollowerRoom
from cairnmq.replication.messages import ENDLESS, FetchPosition, Room
from cairnmq.replication.records import Member

ME, B, C = 1, Member(2, 12), Member(3, 13)
REPLICAS = (ME, 2, 3)
WAIT_MS, FREE = 1_000, 500


def room() -> FollowerRoom:
    one = FollowerRoom(WAIT_MS, FREE)
    one.checkpointed = 90
    return one


def tells(one: FollowerRoom, member: Member, end: int, left: Room, now_ms: int = 0) -> None:
    one.count(FetchPosition(member, 5, end, 5, end, room=left), end, now_ms)


def test_the_slowest_replica_decides() -> None:
    one = room()
    tells(one, B, 100, Room(70))
    assert one.keep_from(REPLICAS, ME, 10) == 0, "nobody knows about the third"
    tells(one, C, 100, Room(80))
    assert one.keep_from(REPLICAS, ME, 10) == 70
    tells(one, B, 100, Room(95))
    tells(one, C, 100, Room(95))
    assert one.keep_from(REPLICAS, ME, 10) == 90, "the leader's own"
    assert one.keep_from((ME,), ME, 10) == 90
    assert one.needed_from((ME,), ME, 10) == ENDLESS


def test_a_replica_that_is_gone_needs_nothing() -> None:
    one = room()
    tells(one, B, 100, Room(85))
    one.gone(3)
    assert one.keep_from(REPLICAS, ME, 10) == 85
    assert one.keep_from(REPLICAS, ME, 101) == 90, "the journal begins after the end of the other one, too"
    tells(one, C, 40, Room(20))
    assert one.keep_from(REPLICAS, ME, 10) == 20, "it is served again"


def test_who_is_short_of_room() -> None:
    one = room()
    tells(one, B, 100, Room(70, 89, FREE))
    tells(one, C, 100, Room(70, 90))
    assert one.short([B, C]) == [C]
    tells(one, B, 100, Room(70, 0, FREE - 1))
    assert one.short([B, C]) == [B, C]
    assert one.short([Member(2, 20)]) == [], "an earlier life does not count for a later one"
    assert one.of(2) == Room(70, 0, FREE - 1) and one.of(4) is None


def test_overdue_only_while_producers_wait_without_a_break() -> None:
    one = room()
    for now_ms in range(0, 5_000, 500):
        tells(one, B, 100, Room(0, 95), now_ms)
        one.look([B, C], now_ms)
    assert not one.overdue and one.heard_short == {B}
    one.producers_wait = True
    one.look([B], 5_000)
    tells(one, B, 100, Room(0, 80), 5_500)
    tells(one, B, 100, Room(0, 95), 5_900)
    one.look([B], 5_900)
    tells(one, B, 100, Room(0, 95), 6_900)
    one.look([B], 6_900)
    assert not one.overdue, "it had room in between"
    one.look([B], 6_901)
    assert one.overdue == {B}


def test_one_that_is_not_heard_is_not_called_slow() -> None:
    one = room()
    one.producers_wait = True
    tells(one, B, 100, Room(0, 95))
    for now_ms in (0, 500, 1_001):
        one.look([B], now_ms)
    assert not one.overdue and not one.heard_short
