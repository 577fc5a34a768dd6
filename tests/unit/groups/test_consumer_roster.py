"""Members of a group of the consumer protocol, and which of them to store."""

from __future__ import annotations

from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_member import ConsumerMember
from cairnmq.groups.consumer_roster import ConsumerRoster
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE, member_key
from cairnmq.groups.subscribed_topics import SubscribedTopics
from cairnmq.groups.topic_pattern import Patterns

ORDERS = b"orders".ljust(16)


def new_roster() -> ConsumerRoster[None]:
    return ConsumerRoster("g", SubscribedTopics(Patterns()))


def member(name: str, instance_id: str | None = None) -> ConsumerMember[None]:
    one: ConsumerMember[None] = ConsumerMember(name, None)
    one.instance_id, one.assigned = instance_id, {ORDERS: frozenset((0, 1))}
    return one


def test_each_change_is_stored_once() -> None:
    roster = new_roster()
    one = member("a")
    roster.add(one)
    roster.changed(one)
    ((space, key, value),) = roster.take_changes()
    assert space == MEMBER_SPACE and member_key(key).member_id == "a" and value is not None
    assert roster.take_changes() == []
    roster.remove(one)
    ((_, _, gone),) = roster.take_changes()
    assert gone is None


def test_partitions_have_an_owner_until_it_leaves() -> None:
    roster = new_roster()
    one = member("a")
    roster.add(one)
    assert roster.owner(ORDERS, 1) == "a"
    roster.remove(one)
    assert roster.owner(ORDERS, 1) is None


def test_the_former_holder_of_a_static_name_is_fenced() -> None:
    roster = new_roster()
    roster.add(member("a", "i"))
    assert roster.stranger("a", "i") is None
    refusal = roster.stranger("b", "i")
    assert refusal is not None and refusal.code == ErrorCode.FENCED_INSTANCE_ID
    refusal = roster.stranger("b", None)
    assert refusal is not None and refusal.code == ErrorCode.UNKNOWN_MEMBER_ID
