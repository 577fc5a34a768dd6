"""Members of a classic group: names, protocols, who leads."""

from __future__ import annotations

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode
from cairnmq.groups.classic_member import Member
from cairnmq.groups.classic_roster import ClassicRoster
from cairnmq.groups.deadlines import Deadline, Limit
from cairnmq.groups.messages import GroupDecision
from cairnmq.groups.stored_group import MemberRecord


def member(name: str, *protocols: str, instance_id: str | None = None) -> Member[None]:
    record = MemberRecord(name, instance_id, name, "/host", 1, 2, tuple((one, b"") for one in protocols), b"")
    return Member(record, Deadline(Limit.SESSION, None, name))


def test_the_protocol_that_most_prefer_of_those_that_all_know() -> None:
    roster: ClassicRoster[None] = ClassicRoster()
    roster.add(member("a", "sticky", "range"))
    roster.add(member("b", "own", "range", "sticky"))
    roster.add(member("c", "range", "sticky"))
    assert roster.all_know("range") and not roster.all_know("own")
    assert roster.elect_protocol() == "range"


def test_the_leader_is_somebody_who_is_here() -> None:
    roster: ClassicRoster[None] = ClassicRoster()
    first, second = member("a", "range"), member("b", "range")
    roster.add(first)
    roster.add(second)
    assert roster.leader == "a" and not roster.elect_leader()
    out: GroupDecision = Decision()
    roster.park_join(second, "ticket", out)
    assert roster.elect_leader() and roster.leader == "b" and roster.joining == 1
    roster.remove(second, out)
    assert roster.leader == "a" and roster.joining == 0
    assert [ticket for ticket, _ in out.responses] == ["ticket"]


def test_a_static_member_keeps_its_place_under_a_new_id() -> None:
    roster: ClassicRoster[None] = ClassicRoster()
    roster.add(member("a", "range", instance_id="i"))
    roster.add(member("b", "range"))
    roster.rename(roster.members["a"], "c", Deadline(Limit.SESSION, None, "c"))
    assert list(roster.members) == ["c", "b"] and roster.leader == "c" and roster.named("i") == "c"
    assert roster.stranger("a", "i") == ErrorCode.FENCED_INSTANCE_ID
