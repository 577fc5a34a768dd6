"""Groups of the consumer protocol, step by step: what members are told, when they are fenced, what a restart keeps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairnmq.errors import ErrorCode
from cairnmq.groups import topic_pattern
from cairnmq.groups.consumer_messages import LEAVES, LEAVES_FOR_NOW
from cairnmq.groups.messages import ConsumerLimits, Identity, State
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.groups.partitions import NOTHING, count
from unit.groups.consumer_group_harness import GROUP, LIMITS, REBALANCE_MS, SESSION_MS, Hall

OK = ErrorCode.NONE


def test_the_first_member_gets_everything_at_once() -> None:
    hall = Hall()
    told = hall.join("a")
    assert (told.error, told.epoch, told.interval_ms) == (OK, 2, 5_000)
    assert hall.numbers("a") == [0, 1, 2, 3]
    assert hall.kind == ("consumer", State.STABLE)
    assert hall.beat("a").assigned is None, "nothing new is not told again"
    whole = hall.beat("a", topics=["orders"], rebalance_ms=REBALANCE_MS)
    assert whole.assigned == hall.owned["a"], "a member that is not sure is told everything"


def test_what_moves_is_given_back_before_it_is_given_on() -> None:
    hall = Hall()
    hall.join("a")
    assert hall.join("b").assigned == NOTHING
    told = hall.beat("a", owned=None)
    assert told.epoch == 2 and hall.numbers("a") == [0, 1]
    assert hall.group.state is State.RECONCILING
    assert hall.beat("b").assigned is None, "the first member has not said that it stopped"
    assert hall.beat("a").epoch == 3
    assert hall.beat("b").epoch == 3
    assert hall.numbers("b") == [2, 3]
    hall.settle("a", "b")
    assert hall.kind == ("consumer", State.STABLE)


def test_who_does_not_give_back_in_time_is_fenced() -> None:
    hall = Hall()
    hall.join("a")
    hall.join("b")
    hall.beat("a", owned=None)
    keeps = hall.owned["a"]
    for _ in range(REBALANCE_MS // 1000 - 1):
        hall.pass_time(1000, "b")
        assert hall.beat("a", owned=None).error == OK
    hall.pass_time(2000, "b")
    assert hall.beat("a", owned=keeps).error == ErrorCode.UNKNOWN_MEMBER_ID
    hall.settle("b")
    assert hall.numbers("b") == [0, 1, 2, 3]


def test_who_is_silent_is_out_after_its_session() -> None:
    hall = Hall()
    hall.join("a")
    hall.join("b")
    hall.settle("a", "b")
    hall.pass_time(SESSION_MS, "a")
    assert hall.group.members.keys() == {"a"}
    hall.settle("a")
    assert hall.numbers("a") == [0, 1, 2, 3]
    hall.topics.configure(GROUP, consumer_session_timeout_ms="3000", consumer_heartbeat_interval_ms="700")
    assert hall.beat("a").interval_ms == 700
    hall.pass_time(3000)
    assert hall.kind == ("consumer", State.EMPTY)


def test_epochs_that_are_wrong() -> None:
    hall = Hall()
    hall.join("a")
    hall.join("b")
    hall.settle("a", "b")
    assert hall.epochs["a"] == 3
    assert hall.say("a", 9, owned=hall.owned["a"]).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert hall.say("a", 2, owned=None).error == ErrorCode.FENCED_MEMBER_EPOCH
    too_much = hall.group.members["b"].assigned
    assert hall.say("a", 2, owned=too_much).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert hall.say("a", 2, owned=hall.owned["a"]).epoch == 3, "the answer to its last heartbeat was lost"
    assert hall.say("nobody", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    again = hall.join("a")
    assert (again.epoch, again.assigned) == (3, hall.owned["a"]), "it has given up everything and comes back"


def test_leaving_frees_what_a_member_had() -> None:
    hall = Hall()
    hall.join("a")
    hall.join("b")
    hall.settle("a", "b")
    assert hall.say("a", LEAVES).epoch == LEAVES
    hall.settle("b")
    assert hall.numbers("b") == [0, 1, 2, 3]
    assert hall.say("a", LEAVES).error == ErrorCode.UNKNOWN_MEMBER_ID
    hall.say("b", LEAVES)
    assert hall.kind == ("consumer", State.EMPTY)
    assert hall.groups.delete(GROUP)[0] == OK
    assert hall.say("b", LEAVES).error == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_comes_back_to_what_it_had() -> None:
    hall = Hall()
    hall.join("a1", instance_id="a")
    hall.join("b1", instance_id="b")
    hall.settle("a1", "b1")
    epoch, had = hall.group.epoch, hall.owned["a1"]
    assert hall.join("a2", instance_id="a").error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert hall.say("a1", LEAVES_FOR_NOW, instance_id="a").epoch == LEAVES_FOR_NOW
    hall.settle("b1")
    assert hall.numbers("b1") == [2, 3], "its partitions wait for it"
    told = hall.join("a2", instance_id="a")
    assert (told.epoch, told.assigned) == (epoch, had)
    assert hall.group.epoch == epoch, "nobody else has noticed"
    assert hall.say("a1", epoch, instance_id="a").error == ErrorCode.FENCED_INSTANCE_ID
    assert hall.say("a1", epoch).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert hall.say("x", 1, instance_id="other").error == ErrorCode.UNKNOWN_MEMBER_ID
    hall.say("a2", LEAVES_FOR_NOW, instance_id="a")
    hall.pass_time(SESSION_MS, "b1")
    hall.settle("b1")
    assert hall.numbers("b1") == [0, 1, 2, 3], "it did not come back in time"


def test_a_static_member_whose_first_answer_was_lost_asks_again() -> None:
    hall = Hall()
    hall.join("a", instance_id="a")
    assert hall.join("a", instance_id="a").error == OK


def test_a_member_that_takes_another_static_name_leaves_the_first_one_to_others() -> None:
    hall = Hall()
    assert hall.join("a", instance_id="i").error == hall.join("a", instance_id="j").error == OK
    assert hall.join("b", instance_id="i").error == OK, "a has given it up"
    hall.say("a", LEAVES, instance_id="j")
    hall.say("b", LEAVES, instance_id="i")
    assert hall.join("c", instance_id="i").error == hall.join("d", instance_id="j").error == OK


def test_a_full_group() -> None:
    hall = Hall(replace(LIMITS, consumer=ConsumerLimits(size_max=1)))
    hall.join("a")
    assert hall.join("b").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert hall.beat("a").error == OK
    joined = hall.classic_join("c")
    assert joined is not None and joined.error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_topics_that_come_grow_and_go() -> None:
    hall = Hall()
    hall.join("a", "orders", "later")
    hall.topics.put("later", 2)
    hall.settle("a")
    assert hall.numbers("a", "later") == [0, 1]
    hall.topics.put("later", 3)
    hall.settle("a")
    assert hall.numbers("a", "later") == [0, 1, 2]
    epoch = hall.group.epoch
    hall.topics.put("other", 1)
    hall.settle("a")
    assert hall.group.epoch == epoch, "nobody subscribes to that"
    hall.topics.delete("orders")
    hall.settle("a")
    assert sum(map(len, hall.owned["a"].values())) == 3
    hall.topics.put("orders", 1)
    hall.settle("a")
    assert hall.numbers("a") == [0], "another topic of the same name"


def test_an_expression_means_topics_that_come_later_too() -> None:
    hall = Hall()
    wrong = hall.join("a", regex="or(")
    assert wrong.error == ErrorCode.INVALID_REGULAR_EXPRESSION and "or(" in (wrong.message or "")
    assert list(hall.groups.listed()) == []
    hall.join("a", regex="ord.*|x")
    assert hall.numbers("a") == [0, 1, 2, 3]
    hall.topics.put("ordinary", 1)
    hall.topics.put("disorder", 1)
    hall.settle("a")
    assert hall.numbers("a", "ordinary") == [0] and hall.numbers("a", "disorder") == []
    assert hall.groups.commits.reads(GROUP, "ordinary") and not hall.groups.commits.reads(GROUP, "disorder")
    hall.restart()
    assert hall.groups.commits.reads(GROUP, "ordinary"), "known again before the first heartbeat"
    hall.beat("a", regex="", topics=["orders"])
    hall.settle("a")
    assert hall.numbers("a", "ordinary") == []


def test_the_assignor_that_most_members_want() -> None:
    hall = Hall()
    hall.topics.put("more", 4)
    hall.join("a", "orders", "more", assignor="range")
    hall.join("b", "orders", "more")
    hall.settle("a", "b")
    assert (hall.numbers("a"), hall.numbers("a", "more")) == ([0, 1], [0, 1])
    assert hall.group.assignor == "range"


def test_what_is_no_longer_subscribed_goes_at_once() -> None:
    hall = Hall()
    hall.topics.put("more", 2)
    hall.join("a", "orders", "more")
    told = hall.beat("a", topics=["more"], owned=hall.owned["a"])
    assert told.assigned is not None and len(told.assigned) == 1
    hall.settle("a")
    assert (hall.numbers("a"), hall.numbers("a", "more")) == ([], [0, 1])


def test_who_may_commit_and_read_offsets() -> None:
    hall = Hall()
    hall.join("a")

    def commit(member: str, epoch: int, knows_epochs: bool = True, transactional: bool = False) -> ErrorCode:
        producer_id = 9 if transactional else None
        command = OffsetCommit(GROUP, member, None, epoch, producer_id=producer_id, knows_epochs=knows_epochs)
        return hall.groups.commits.error(command, hall.now_ms)

    assert commit("a", 2) == OK
    assert commit("a", 1) == commit("a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("b", 1) == commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("a", 2, knows_epochs=False) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("", -1, transactional=True) == commit("a", 2, transactional=True) == OK
    assert commit("a", 1, transactional=True) == commit("a", 3, transactional=True) == ErrorCode.STALE_MEMBER_EPOCH
    assert hall.groups.fetch_error(GROUP, "a", 2) == hall.groups.fetch_error(GROUP, None, -1) == OK
    assert hall.groups.fetch_error(GROUP, "a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert hall.groups.fetch_error(GROUP, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert hall.groups.fetch_error("none", "b", 1) == OK
    hall.say("a", LEAVES)
    assert commit("", -1) == OK


def test_a_restart_keeps_members_epochs_and_partitions() -> None:
    hall = Hall()
    hall.join("a", rack_id="r1")
    hall.join("b", instance_id="i", regex="ord.*")
    hall.beat("a", owned=None)
    before = hall.group.describe_consumers()
    hall.restart()
    assert hall.group.describe_consumers() == before
    hall.settle("a", "b")
    assert (hall.numbers("a"), hall.numbers("b")) == ([0, 1], [2, 3])
    assert hall.group.describe_consumers().members[0].rack_id == "r1"
    hall.restart()
    hall.pass_time(SESSION_MS - 1000)
    assert hall.kind[1] == State.STABLE, "everybody has a whole session to be heard of"
    hall.pass_time(2000)
    assert hall.kind[1] == State.EMPTY


def test_offsets_of_topics_that_are_read_do_not_age() -> None:
    hall = Hall()
    hall.join("a")
    orders, other = hall.topics.get("orders"), hall.topics.put("other", 1)
    assert orders is not None
    names = {orders.topic_id: "orders", other.topic_id: "other"}
    for topic_id in names:
        hall.groups.apply(put(OffsetKey(GROUP, topic_id, 0), Committed(1, commit_ms=hall.now_ms)))

    def expire(ms: int) -> None:
        hall.take(hall.groups.expire_offsets(GROUP, hall.now_ms + ms, 1000, names.get))

    expire(2000)
    assert list(hall.groups.offsets.topics(GROUP)) == [orders.topic_id]
    assert not hall.groups.commits.reads(GROUP, "other") and hall.groups.commits.delete_error(GROUP) == OK
    assert hall.groups.delete(GROUP)[0] == ErrorCode.NON_EMPTY_GROUP
    hall.say("a", LEAVES)
    expire(500)
    assert list(hall.groups.offsets.topics(GROUP)) == [orders.topic_id]
    expire(2000)
    assert not hall.groups.exists(GROUP) and not hall.stored


def test_a_static_member_is_removed_by_an_administrator() -> None:
    hall = Hall()
    hall.join("a", instance_id="i")
    assert hall.classic_leave(Identity("", "j"), Identity("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID, OK]
    assert hall.kind == ("consumer", State.EMPTY)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_expression_that_takes_several_heartbeats(monkeypatch: pytest.MonkeyPatch, restarted: bool) -> None:
    """Its member gets its part also when somebody reads the same topic by name already."""
    monkeypatch.setattr(topic_pattern, "WORK_MAX", 400)
    hall = Hall()
    for number in range(60):
        hall.topics.put(f"other-{number:03}", 1)
    hall.join("a", "orders")
    hall.settle("a")
    hall.join("b", regex="ord.*")
    assert not hall.owned["b"], "too much work for one heartbeat"
    if restarted:
        hall.restart()
    for _ in range(10):
        hall.beat("a")
        hall.beat("b")
    assert {name: count(hall.owned[name]) for name in "ab"} == {"a": 2, "b": 2}
    hall.beat("b", regex="other-.*")
    for _ in range(60):
        hall.beat("a")
        hall.beat("b")
    assert {name: count(hall.owned[name]) for name in "ab"} == {"a": 4, "b": 60}
