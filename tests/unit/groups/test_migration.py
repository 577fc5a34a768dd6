"""A live group changes its protocol: members of both in one group, and back to the classic one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_messages import LEAVES
from cairnmq.groups.messages import ConsumerLimits, GroupDecision, Identity, State
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolAssignment
from unit.groups.classic_group_harness import subscription
from unit.groups.consumer_group_harness import GROUP, LIMITS, REBALANCE_MS, SESSION_MS, Hall

OK, AGAIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


def given(*partitions: int, user_data: bytes | None = None) -> bytes:
    rows = [ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=list(partitions))]
    message = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)
    return b"\0\1" + b"".join(encode(message, 1))


def old_group(hall: Hall, **more: object) -> None:
    """A stable classic group of one member with everything."""
    assert hall.classic_join("old", **more) is not None
    assert hall.classic_sync("old", {"old": given(0, 1, 2, 3)}).error == OK


def test_a_classic_group_changes_over_without_a_partition_of_two_owners() -> None:
    hall = Hall()
    old_group(hall)
    assert hall.kind == ("classic", State.STABLE)
    told = hall.join("new")
    assert (told.error, told.epoch) == (OK, 2)
    assert hall.kind == ("consumer", State.RECONCILING)
    assert hall.owned["new"] == {}, "the old member still has everything"
    assert hall.classic_beat("old") == AGAIN
    joined = hall.classic_join("old", "old", owned=[0, 1, 2, 3])
    assert joined is not None and joined.generation == 1, "it gives back at the epoch it is at"
    assert joined.leader == "" and joined.members == ()
    hall.classic_sync("old", protocol_type="consumer", protocol="range")
    assert hall.numbers("old") == [0, 1]
    assert hall.beat("new").assigned is None
    assert hall.classic_beat("old") == AGAIN
    joined = hall.classic_join("old", "old", owned=[0, 1])
    assert joined is not None and joined.generation == 2
    assert hall.classic_sync("old").error == OK
    hall.beat("new")
    assert (hall.numbers("old"), hall.numbers("new")) == ([0, 1], [2, 3])
    assert hall.classic_beat("old") == OK
    assert hall.kind == ("consumer", State.STABLE)
    assert [member.is_classic for member in hall.group.describe_consumers().members] == [True, False]


def test_the_last_one_of_the_new_protocol_takes_it_along() -> None:
    hall = Hall()
    old_group(hall)
    hall.join("new")
    hall.classic_join("old", "old")
    hall.classic_sync("old")
    hall.beat("new")
    hall.say("new", LEAVES)
    assert hall.kind == ("classic", State.PREPARING)
    assert hall.classic_beat("old") == AGAIN
    assert not hall.groups._stored_members
    joined = hall.classic_join("old", "old")
    assert joined is not None and joined.leader == "old"
    assert hall.classic_sync("old", {"old": given(0, 1, 2, 3)}).error == OK
    assert hall.kind == ("classic", State.STABLE)


def test_after_a_crash_in_the_middle_of_going_back_everybody_joins_again() -> None:
    hall = Hall()
    old_group(hall)
    hall.join("new")
    hall.classic_join("old", "old")
    hall.say("new", LEAVES)
    hall.restart()
    assert hall.kind == ("classic", State.EMPTY)
    assert hall.classic_beat("old") == ErrorCode.UNKNOWN_MEMBER_ID
    joined = hall.classic_join("old")
    assert joined is not None and joined.leader == "old" and joined.members


@pytest.mark.parametrize("how", ["silence", "kick"])
def test_a_member_of_the_new_protocol_may_go_otherwise(how: str) -> None:
    hall = Hall()
    old_group(hall)
    hall.join("new", instance_id="i")
    hall.classic_join("old", "old")
    hall.classic_sync("old")
    if how == "kick":
        assert hall.classic_leave(Identity("", "i")) == [OK]
    else:
        for _ in range(SESSION_MS // 1000 + 1):
            hall.pass_time(1000)
            hall.classic_beat("old")
    assert hall.kind[0] == "classic"


def test_policies() -> None:
    hall = Hall(replace(LIMITS, consumer=ConsumerLimits(may_upgrade=False)))
    old_group(hall)
    told = hall.join("new")
    assert told.error == ErrorCode.GROUP_ID_NOT_FOUND and "disabled" in (told.message or "")
    assert hall.kind == ("classic", State.STABLE) and hall.classic_beat("old") == OK
    hall = Hall(replace(LIMITS, consumer=ConsumerLimits(may_downgrade=False)))
    old_group(hall)
    hall.join("new")
    hall.classic_join("old", "old")
    hall.say("new", LEAVES)
    assert hall.kind[0] == "consumer"


def test_groups_that_cannot_change_over() -> None:
    hall = Hall()
    hall.classic_join("old", protocol_type="connect", protocols=(("x", b""),))
    assert "embedded protocol" in (hall.join("new").message or "")
    hall = Hall()
    hall.classic_join("old", protocols=(("x", b"\0"),))
    assert "malformed" in (hall.join("new").message or "")
    hall = Hall()
    hall.classic_join("old", protocols=(("own", subscription("orders")),))
    hall.classic_sync("old", {"old": given(0, user_data=b"mine")})
    assert "custom assignor" in (hall.join("new").message or "")
    assert hall.kind == ("classic", State.STABLE)


def test_user_data_that_librdkafka_echoes_is_no_hindrance() -> None:
    hall = Hall()
    hall.classic_join("old", protocols=(("cooperative-sticky", subscription("orders")),))
    hall.classic_sync("old", {"old": given(0, 1, 2, 3, user_data=b"echo")})
    assert hall.join("new").error == OK
    assert hall.kind[0] == "consumer"


def test_who_waits_in_the_classic_group_is_told_to_come_again() -> None:
    hall = Hall()
    hall.classic_join("one")
    hall.classic_sync("one", {"one": given(0, 1, 2, 3)})
    assert hall.classic_join("two") is None, "it waits for the first one"
    hall.join("new")
    assert hall.answers["two"].error == AGAIN


def test_an_empty_group_takes_the_protocol_of_whoever_comes() -> None:
    hall = Hall()
    hall.join("new")
    hall.say("new", LEAVES)
    old_group(hall)
    assert hall.kind == ("classic", State.STABLE)
    assert hall.classic_leave(Identity("old")) == [OK]
    assert hall.kind == ("classic", State.EMPTY)
    hall.join("new")
    assert hall.kind == ("consumer", State.STABLE)
    hall.restart()
    assert hall.kind == ("consumer", State.STABLE)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_offsets_age_from_when_the_group_became_empty_whoever_asks_to_join(refused: bool, restarted: bool) -> None:
    """A classic client that dies after its first request does not take away what the members have left."""
    hall = Hall()
    hall.join("new")
    committed: GroupDecision = Decision()
    committed.records.append(put(OffsetKey(GROUP, b"t" * 16, 0), Committed(1, commit_ms=hall.now_ms)))
    hall.take(committed)
    retention_ms = 5 * SESSION_MS
    hall.pass_time(2 * retention_ms, "new")
    hall.say("new", LEAVES)
    left_ms = hall.now_ms
    asked = hall.classic_join("x", needs_id=True, **({"protocols": ()} if refused else {}))
    error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if refused else ErrorCode.MEMBER_ID_REQUIRED
    assert asked is not None and asked.error == error
    hall.pass_time(2 * SESSION_MS)
    if restarted:
        hall.restart()
    assert hall.kind == ("consumer" if refused else "classic", State.EMPTY)

    def expire(ms: int) -> bool:
        hall.take(hall.groups.expire_offsets(GROUP, left_ms + ms, retention_ms, lambda topic_id: "orders"))
        return hall.groups.exists(GROUP)

    assert expire(retention_ms - 1) and not expire(retention_ms)
    assert not hall.stored


def test_what_classic_members_are_refused() -> None:
    hall = Hall()
    hall.join("new")
    other = hall.classic_join("x", protocol_type="connect")
    assert other is not None and other.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unread = hall.classic_join("x", protocols=(("range", b""),))
    assert unread is not None and unread.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    first = hall.classic_join("x", needs_id=True)
    assert first is not None and first.error == ErrorCode.MEMBER_ID_REQUIRED
    assert hall.classic_join("x", "x") is not None
    assert hall.classic_sync("x", protocol="other").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    hall.epochs["x"] += 1
    assert hall.classic_sync("x").error == hall.classic_beat("x") == ErrorCode.ILLEGAL_GENERATION
    assert hall.groups.heartbeat(GROUP, "new", None, 1, hall.now_ms) == ErrorCode.UNKNOWN_MEMBER_ID
    assert hall.groups.heartbeat(GROUP, "z", None, 1, hall.now_ms) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_come_back_is_fenced() -> None:
    hall = Hall()
    old_group(hall)
    hall.join("new")
    assert hall.classic_beat("old") == AGAIN
    for _ in range(REBALANCE_MS // 1000 + 1):
        hall.pass_time(1000, "new")
        if "old" in hall.group.members:
            hall.classic_beat("old")
    assert hall.group.members.keys() == {"new"}
    hall.settle("new")
    assert hall.numbers("new") == [0, 1, 2, 3]


def test_a_classic_static_member_is_replaced_by_a_new_client() -> None:
    hall = Hall()
    old_group(hall, instance_id="i")
    told = hall.join("new", instance_id="i")
    assert told.error == OK and hall.numbers("new") == [0, 1, 2, 3]
    assert hall.group.members.keys() == {"new"}
    back = hall.classic_join("again", instance_id="i")
    assert back is not None and back.error == OK
    assert hall.kind[0] == "classic", "no one speaks the new protocol any more"
