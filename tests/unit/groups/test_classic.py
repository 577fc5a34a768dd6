"""The classic group: every state, every answer, and what is stored when."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.groups.messages import Identity, Joined, Limits, State, Sync, Synced
from unit.groups.classic_group_harness import GROUP, LIMITS, RANGE, REBALANCE_MS, SESSION_MS, Room, subscription

OK = ErrorCode.NONE
STICKY = (("sticky", b"s"), *RANGE)


def joined(room: Room, name: str) -> Joined:
    answer = room.joined(name)
    assert answer is not None, f"{name} still waits"
    return answer


# ------------------------------------------------------------------------------------------------ coming into a group


def test_a_new_member_is_given_an_id_and_asks_again() -> None:
    room = Room()
    first = room.join("a", needs_id=True)
    assert first == Joined(ErrorCode.MEMBER_ID_REQUIRED, "a-1")
    assert room.facts == []
    second = room.join("a", needs_id=True)
    assert second is not None
    assert (second.error, second.member_id, second.generation) == (OK, "a-1", 1)


def test_an_older_client_comes_in_at_once() -> None:
    answer = Room().join("a", needs_id=False)
    assert answer is not None
    assert (answer.error, answer.generation, answer.leader, answer.member_id) == (OK, 1, "a-1", "a-1")
    assert (answer.protocol_type, answer.protocol, answer.skip_assignment) == ("consumer", "range", False)


def test_a_static_member_needs_no_second_round() -> None:
    answer = Room().join("a", needs_id=True, instance_id="i")
    assert answer is not None and answer.error == OK
    assert [(member.member_id, member.instance_id) for member in answer.members] == [("a-1", "i")]


def test_an_id_that_is_not_used_is_forgotten_and_with_it_a_group_without_members() -> None:
    room = Room()
    room.join("a", needs_id=True)
    assert room.state is State.EMPTY
    room.pass_time(SESSION_MS - 1)
    assert room.state is State.EMPTY
    room.pass_time(1)
    assert room.state is State.DEAD
    answer = room.join("a", needs_id=True)
    assert answer is not None and answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given() -> None:
    room = Room().stable("a")
    room.join("b", needs_id=True)
    assert room.join("a") is None, "the leader asks for a rebalance; b is on its way"
    room.join("b", needs_id=True)
    assert joined(room, "a").generation == joined(room, "b").generation == 2


def test_a_rebalance_goes_on_when_a_given_id_is_not_used() -> None:
    room = Room().stable("a")
    room.join("b", needs_id=True)
    assert room.join("a") is None
    room.pass_time(SESSION_MS)
    assert joined(room, "a").generation == 2


def test_a_rebalance_goes_on_when_a_given_id_leaves() -> None:
    room = Room().stable("a")
    room.join("b", needs_id=True)
    room.join("a")
    assert room.leave("b") == [OK]
    assert joined(room, "a").generation == 2


def test_an_id_that_leaves_disturbs_nobody() -> None:
    room = Room().stable("a")
    room.join("b", needs_id=True)
    assert room.leave("b") == [OK]
    assert room.state is State.STABLE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
@pytest.mark.parametrize("needs_id", [True, False])
def test_refused_by_a_group_that_does_not_exist(fields: dict[str, object], error: ErrorCode, needs_id: bool) -> None:
    room = Room()
    answer = room.join("a", needs_id=needs_id, **fields)
    assert answer == Joined(error, str(fields.get("member_id", "")))
    assert room.state is State.DEAD, "and it still does not"


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_sessions_at_the_bounds(session_ms: int) -> None:
    answer = Room().join("a", session_ms=session_ms)
    assert answer is not None and answer.error == OK


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("sticky", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused_by_a_group_with_members(fields: dict[str, object], error: ErrorCode) -> None:
    room = Room().stable("a")
    answer = room.join("b", **fields)
    assert answer is not None and answer.error == error
    assert room.state is State.STABLE


def test_any_type_of_protocol() -> None:
    """Kafka Connect and schema registries find their leader this way."""
    room = Room()
    answer = room.join("worker", protocol_type="connect", protocols=(("default", b"\x00\x01url"),))
    assert answer is not None and [member.metadata for member in answer.members] == [b"\x00\x01url"]
    room.sync("worker", {"worker": b"lead"})
    assert room.members() == {"worker": b"lead"}


def test_an_empty_group_may_change_its_type() -> None:
    room = Room().stable("a")
    room.leave("a")
    answer = room.join("b", protocol_type="connect", protocols=(("default", b""),))
    assert answer is not None
    assert (answer.error, answer.protocol_type, answer.generation) == (OK, "connect", 3)


class TestSize:
    LIMITS = Limits(initial_delay_ms=0, size_max=2)

    def test_a_full_group(self) -> None:
        room = Room(self.LIMITS).stable("a", "b")
        assert room.join("c") == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert room.state is State.STABLE

    def test_members_may_rejoin(self) -> None:
        room = Room(self.LIMITS).stable("a", "b")
        room.rejoin("a", "b")
        assert room.generations == {"a": 3, "b": 3}

    def test_first_come_first_served_in_a_rebalance(self) -> None:
        room = Room(self.LIMITS).stable("a", "b")
        room.join("a")
        room.join("c", needs_id=True)
        assert room.join("c", needs_id=True) is None
        assert room.join("b") == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")

    def test_room_for_one_more(self) -> None:
        room = Room(self.LIMITS).stable("a")
        room.join("b")
        assert room.state is State.PREPARING


class TestInitialDelay:
    LIMITS = Limits(initial_delay_ms=3_000)

    def test_more_members_are_waited_for(self) -> None:
        room = Room(self.LIMITS)
        assert room.join("a") is None
        assert room.state is State.PREPARING
        room.pass_time(2_999)
        assert room.joined("a") is None
        room.pass_time(1)
        assert joined(room, "a").generation == 1

    def test_who_comes_meanwhile_extends_it(self) -> None:
        room = Room(self.LIMITS)
        room.join("a")
        room.pass_time(2_000)
        room.join("b")
        room.pass_time(3_999)
        assert room.joined("a") is None
        room.pass_time(1)
        assert joined(room, "a").generation == joined(room, "b").generation == 1
        assert len(joined(room, "a").members) == 2

    def test_not_beyond_the_rebalance_time(self) -> None:
        room = Room(self.LIMITS)
        room.join("0", rebalance_ms=7_000)
        for number in range(1, 7):
            room.pass_time(1_000)
            room.join(str(number), rebalance_ms=7_000)
        room.pass_time(999)
        assert room.joined("0") is None
        room.pass_time(1)
        assert len(joined(room, "0").members) == 7

    def test_only_from_empty(self) -> None:
        room = Room(self.LIMITS)
        room.join("a")
        room.pass_time(3_000)
        room.sync("a", {})
        room.join("b")
        room.join("a")
        assert joined(room, "b").generation == 2

    def test_all_leave_meanwhile(self) -> None:
        room = Room(self.LIMITS)
        room.join("a", needs_id=True)
        room.join("a", needs_id=True)
        room.leave("a")
        assert joined(room, "a").error == ErrorCode.UNKNOWN_MEMBER_ID
        room.pass_time(3_000)
        assert room.state is State.EMPTY


# --------------------------------------------------------------------------------------------------- joining again


def test_only_the_leader_is_told_the_members() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    assert [member.member_id for member in joined(room, "a").members] == [room.ids["a"], room.ids["b"]]
    assert joined(room, "b").members == ()
    assert joined(room, "b").leader == room.ids["a"]


def test_a_lost_answer_is_given_again_while_the_leader_assigns() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    for name, count in (("a", 2), ("b", 0)):
        answer = room.join(name)
        assert answer is not None
        assert (answer.error, answer.generation, len(answer.members)) == (OK, 3, count)
    assert room.state is State.COMPLETING


def test_a_follower_that_joins_again_unchanged_disturbs_nobody() -> None:
    room = Room().stable("a", "b")
    answer = room.join("b")
    assert answer == Joined(OK, room.ids["b"], 2, "consumer", "range", room.ids["a"])
    assert room.state is State.STABLE


def test_a_leader_that_joins_again_always_rebalances() -> None:
    room = Room().stable("a", "b")
    assert room.join("a") is None
    assert room.state is State.PREPARING


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("completing", [True, False])
def test_changed_metadata_rebalances(name: str, completing: bool) -> None:
    room = Room().stable("a", "b")
    if completing:
        room.join("a")
        room.join("b")
    assert room.join(name, protocols=(("range", subscription("orders", "payments")),)) is None
    assert room.state is State.PREPARING


def test_a_join_that_is_repeated_while_it_waits() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    parked = room.answers
    room.answers = {}
    answers = room.groups.join(_command(room, "a"), "again", room.now_ms, "unused").responses
    assert answers == [("a", Joined(ErrorCode.REBALANCE_IN_PROGRESS, room.ids["a"]))]
    room.answers = parked
    room.join("b")
    assert room.answers["again"].generation == room.answers["b"].generation == 3


def _command(room: Room, name: str):  # type: ignore[no-untyped-def]
    from cairnmq.groups.messages import Join

    return Join(GROUP, room.ids[name], None, name, "", SESSION_MS, REBALANCE_MS, "consumer", RANGE)


def test_who_does_not_come_back_is_left_behind() -> None:
    room = Room().stable("a", "b", "c")
    room.join("a")
    room.keep_alive(REBALANCE_MS - 1_000, "b", "c")
    assert room.joined("a") is None
    room.join("b")
    room.pass_time(1_000)
    assert joined(room, "a").generation == joined(room, "b").generation == 3
    assert len(joined(room, "a").members) == 2
    assert room.heartbeat("c") == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_time_of_all_members_counts() -> None:
    room = Room()
    room.join("a", rebalance_ms=20_000)
    room.join("b", rebalance_ms=40_000)
    room.join("a", rebalance_ms=20_000)
    room.sync("b")
    room.sync("a", {})
    room.join("b", rebalance_ms=40_000, protocols=STICKY)
    room.keep_alive(39_000, "a")
    assert room.joined("b") is None
    room.pass_time(1_000)
    assert joined(room, "b").generation == 3


def test_a_new_leader_if_the_old_one_does_not_come_back() -> None:
    room = Room().stable("a", "b", "c")
    room.join("b", protocols=STICKY)
    room.join("c")
    room.keep_alive(REBALANCE_MS, "a")
    assert joined(room, "b").leader == joined(room, "c").leader == room.ids["b"]
    assert len(joined(room, "b").members) == 2


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        ([("range",), ("range",)], "range"),
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range", "sticky"), ("roundrobin", "sticky")], "sticky"),
        ([("range", "sticky"), ("range", "sticky"), ("sticky", "range")], "range"),
        ([("a", "b", "c"), ("b", "c", "a"), ("c", "b"), ("b", "c")], "b"),
    ],
)
def test_the_protocol_most_members_prefer_of_those_all_know(wishes: list[tuple[str, ...]], chosen: str) -> None:
    room = Room(Limits(initial_delay_ms=100))
    for number, names in enumerate(wishes):
        room.join(str(number), protocols=tuple((name, name.encode()) for name in names))
    room.pass_time(200)
    assert joined(room, "0").protocol == chosen
    assert {member.metadata for member in joined(room, "0").members} == {chosen.encode()}


def test_a_client_that_never_hears_of_its_first_join_is_forgotten() -> None:
    room = Room(LIMITS).stable("a")
    room.join("b", rebalance_ms=1_800_000)
    room.keep_alive(300_000, "a")
    assert joined(room, "b") == Joined(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert room.join("a") is not None, "nobody else is waited for"


# ---------------------------------------------------------------------------------------------------- assignments


def test_followers_wait_for_the_leader() -> None:
    room = Room().stable("a", "b", "c")
    room.join("a")
    room.join("b")
    room.join("c")
    assert room.sync("b") is None
    assert room.state is State.COMPLETING
    assert room.sync("a", {"a": b"1", "b": b"2"}) == Synced(OK, "consumer", "range", b"1")
    assert room.answers["b"] == Synced(OK, "consumer", "range", b"2")
    assert room.state is State.STABLE
    assert room.sync("c") == Synced(OK, "consumer", "range", b""), "the leader did not mention it"


def test_a_stable_group_repeats_its_assignments() -> None:
    room = Room().stable("a", "b")
    facts = len(room.facts)
    assert room.sync("b") == Synced(OK, "consumer", "range", b"for b")
    assert room.sync("a", {"a": b"other"}) == Synced(OK, "consumer", "range", b"for a")
    assert len(room.facts) == facts


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol": "range"}, OK),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_sync(fields: dict[str, object], error: ErrorCode) -> None:
    room = Room().stable("a", "b")
    answer = room.sync("b", **fields)
    assert answer is not None and answer.error == error


def test_no_assignment_while_members_join() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    answer = room.sync("b")
    assert answer is not None and answer.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_rebalance_ends_the_wait_for_the_old_one() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    room.sync("b")
    room.join("c")
    assert room.answers["b"] == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    assert room.state is State.PREPARING


def test_who_does_not_ask_for_its_assignment_is_left_behind() -> None:
    room = Room().stable("a", "b", "c")
    for name in ("a", "b", "c"):
        room.join(name)
    room.sync("b")
    room.sync("a", {"a": b"1"})
    room.keep_alive(REBALANCE_MS, "a", "b", "c")
    assert room.heartbeat("c") == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.state is State.PREPARING


def test_a_leader_that_never_assigns_is_left_behind() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    room.sync("b")
    room.keep_alive(REBALANCE_MS, "a", "b")
    assert room.answers["b"] == Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    answer = room.join("b")
    assert answer is not None and (answer.error, answer.leader) == (OK, room.ids["b"])


def test_nothing_happens_at_the_limit_when_all_have_asked() -> None:
    room = Room().stable("a", "b")
    room.keep_alive(2 * REBALANCE_MS, "a", "b")
    assert room.state is State.STABLE and room.generations == {"a": 2, "b": 2}


# ------------------------------------------------------------------------------------------------------ heartbeats


def test_heartbeats_in_every_state() -> None:
    room = Room()
    assert room.heartbeat("a", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    room.stable("a", "b")
    assert room.heartbeat("a") == OK
    assert room.heartbeat("a", generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert room.heartbeat("a", instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    room.join("a")
    assert room.state is State.PREPARING
    assert room.heartbeat("b") == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.heartbeat("b", generation=1) == ErrorCode.ILLEGAL_GENERATION
    room.join("b")
    assert room.state is State.COMPLETING
    assert room.heartbeat("b") == OK
    room.leave("a", "b")
    assert room.state is State.EMPTY
    assert room.heartbeat("a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.groups.heartbeat("", "a", None, 1, room.now_ms) == ErrorCode.INVALID_GROUP_ID


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    room = Room().stable("a", "b")
    room.pass_time(SESSION_MS - 1)
    room.heartbeat("a")
    room.pass_time(1)
    assert room.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.heartbeat("b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.join("a") is not None


def test_sessions_have_their_own_lengths() -> None:
    room = Room()
    room.join("a", session_ms=20_000)
    room.join("b", session_ms=10_000)
    room.join("a", session_ms=20_000)
    room.sync("b")
    room.sync("a", {})
    room.pass_time(19_999)
    assert list(room.members()) == ["a"]
    room.pass_time(1)
    assert room.members() == {} and room.state is State.EMPTY


def test_the_last_silent_member_leaves_the_group_empty() -> None:
    room = Room().stable("a")
    room.pass_time(SESSION_MS)
    assert room.state is State.EMPTY


def test_heartbeats_count_while_the_others_join() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.keep_alive(3 * SESSION_MS, "b")
    assert list(room.members()) == ["a", "b"]


def test_a_member_that_waits_for_an_answer_need_not_send_heartbeats() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.keep_alive(3 * SESSION_MS, "b")
    room.join("b")
    assert joined(room, "a").error == joined(room, "b").error == OK
    room.sync("b")
    room.keep_alive(3 * SESSION_MS, "a")
    room.sync("a", {"b": b"2"})
    assert room.answers["b"].assignment == b"2"
    room.pass_time(SESSION_MS)
    assert room.state is State.EMPTY, "but from the answer on it must"


@pytest.mark.parametrize("state", [State.STABLE, State.PREPARING])
def test_a_commit_keeps_its_member_alive(state: State) -> None:
    room = Room().stable("a", "b")
    if state is State.PREPARING:
        room.join("b", protocols=STICKY)
    for _ in range(4):
        room.pass_time(SESSION_MS - 1)
        assert room.commit_error("a", room.generations["a"]) == OK
        room.heartbeat("b")
    assert room.state is state


# --------------------------------------------------------------------------------------------------------- leaving


def test_a_member_that_leaves_rebalances_the_others() -> None:
    room = Room().stable("a", "b")
    assert room.leave("b") == [OK]
    assert room.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS
    answer = room.join("a")
    assert answer is not None and answer.generation == 3


def test_the_last_member_leaves_the_group_empty_and_the_answer_waits_for_the_fact() -> None:
    room = Room().stable("a")
    decision = room.groups.leave(GROUP, [Identity(room.ids["a"])], "t", room.now_ms)
    assert [fact[0] for fact in decision.records] == ["group"]
    assert [ticket for ticket, _ in decision.responses] == ["t"]


def test_several_leave_at_once() -> None:
    room = Room().stable("a", "b", "c", instance_id=None)
    found = room.leave("b", Identity("who"), "c", Identity("", "i"), Identity(""))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert found == [OK, unknown, OK, unknown, unknown]
    assert list(room.members()) == ["a"]


def test_a_leaver_that_is_unknown_disturbs_nobody() -> None:
    room = Room().stable("a")
    assert room.leave(Identity("who")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.state is State.STABLE


def test_an_administrator_removes_a_static_member() -> None:
    room = static_pair()
    assert room.leave(Identity("", "ib")) == [OK]
    assert list(room.members()) == ["a"]


def test_leaving_with_another_instance_id() -> None:
    room = static_pair()
    assert room.leave(Identity("old", "ib")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert room.leave(Identity(room.ids["b"], "nobody")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.state is State.STABLE


def test_a_waiting_join_is_answered_when_its_member_is_removed() -> None:
    room = Room().stable("a", "b")
    room.join("b", protocols=STICKY)
    room.leave("b")
    assert joined(room, "b") == Joined(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_waiting_sync_is_answered_when_its_member_is_removed() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    room.sync("b")
    room.leave("b")
    assert room.answers["b"] == Synced(ErrorCode.UNKNOWN_MEMBER_ID)


def test_the_others_go_on_when_the_one_they_wait_for_leaves() -> None:
    room = Room().stable("a", "b")
    assert room.join("a") is None
    room.leave("b")
    assert joined(room, "a").generation == 3


# -------------------------------------------------------------------------------------------------- static members


def static_pair() -> Room:
    """Members a (leader) and b with instance ids ia and ib, stable in generation 2."""
    room = Room()
    room.join("a", instance_id="ia")
    room.join("b", instance_id="ib")
    room.join("a", instance_id="ia")
    room.sync("b", instance_id="ib")
    room.sync("a", {"a": b"for a", "b": b"for b"}, instance_id="ia")
    assert room.state is State.STABLE and room.generations == {"a": 2, "b": 2}
    return room


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    room = static_pair()
    old = room.ids["b"]
    facts = len(room.facts)
    answer = room.join("b", member_id="", instance_id="ib")
    assert answer is not None
    assert (answer.error, answer.generation, answer.leader, answer.members) == (OK, 2, room.ids["a"], ())
    assert room.ids["b"] != old
    assert room.sync("b", instance_id="ib") == Synced(OK, "consumer", "range", b"for b")
    assert room.heartbeat("a", instance_id="ia") == room.heartbeat("b", instance_id="ib") == OK
    assert len(room.facts) == facts + 1, "the new id is stored"
    assert list(room.restart().members()) == ["a", "b"]


def test_even_with_other_metadata_as_long_as_the_protocol_stays() -> None:
    """As in Kafka: what a member of a sticky protocol owns differs after every restart."""
    room = static_pair()
    answer = room.join("b", member_id="", instance_id="ib", protocols=(("range", b"other"),))
    assert answer is not None and answer.error == OK and room.state is State.STABLE


def test_the_old_id_of_a_static_member_is_fenced_everywhere() -> None:
    room = static_pair()
    old = room.ids["b"]
    room.join("b", member_id="", instance_id="ib")
    new = room.ids["b"]
    room.ids["b"] = old
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat("b", instance_id="ib") == fenced
    assert room.join("b", instance_id="ib") == Joined(fenced, old)
    assert room.sync("b", instance_id="ib") == Synced(fenced)
    assert room.commit_error("b", 2, instance_id="ib") == fenced
    assert room.leave(Identity(old, "ib")) == [fenced]
    assert room.heartbeat("b") == ErrorCode.UNKNOWN_MEMBER_ID, "without its instance id it is a stranger"
    assert new != old and room.state is State.STABLE


def test_a_static_leader_that_comes_back_need_not_assign() -> None:
    room = static_pair()
    answer = room.join("a", member_id="", instance_id="ia")
    assert answer is not None
    assert (answer.leader, answer.skip_assignment, len(answer.members)) == (room.ids["a"], True, 2)


def test_an_older_static_leader_that_comes_back_does_not_know_that_it_leads() -> None:
    room = static_pair()
    old = room.ids["a"]
    answer = room.join("a", member_id="", instance_id="ia", may_skip=False)
    assert answer is not None
    assert (answer.leader, answer.skip_assignment, answer.members) == (old, False, ())
    assert room.join("a", instance_id="ia") is None, "but it does lead: joining again rebalances"


def test_a_static_member_that_comes_back_with_another_protocol() -> None:
    room = Room()
    for name in ("a", "b", "a"):
        room.join(name, instance_id=f"i{name}", protocols=STICKY)
    room.sync("a", {}, instance_id="ia")
    assert room.members().keys() == {"a", "b"}
    assert room.join("b", member_id="", instance_id="ib", protocols=RANGE) is None
    assert room.state is State.PREPARING


def test_a_static_member_that_comes_back_while_the_leader_assigns() -> None:
    """The leader knows only its old id, so it would get nothing."""
    room = static_pair()
    room.join("a", instance_id="ia")
    room.join("b", instance_id="ib")
    room.sync("b", instance_id="ib")
    parked = room.answers.pop("b", None)
    assert parked is None
    assert room.join("b2", member_id="", instance_id="ib") is None
    assert room.answers["b"] == Synced(ErrorCode.FENCED_INSTANCE_ID)
    assert room.state is State.PREPARING


def test_a_static_member_that_comes_back_while_members_join() -> None:
    room = static_pair()
    room.join("b", instance_id="ib", protocols=STICKY)
    assert room.join("b2", member_id="", instance_id="ib") is None
    assert room.answers["b"] == Joined(ErrorCode.FENCED_INSTANCE_ID, room.ids["b"])
    room.join("a", instance_id="ia")
    assert joined(room, "b2").generation == joined(room, "a").generation == 3


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    room = Room()
    short = {"rebalance_ms": SESSION_MS - 2_000}
    room.join("a", instance_id="ia", **short)
    room.join("b", instance_id="ib", **short)
    room.join("a", instance_id="ia", **short)
    room.sync("b", instance_id="ib")
    room.sync("a", {}, instance_id="ia")
    assert room.join("a", instance_id="ia", **short) is None
    room.pass_time(SESSION_MS - 2_000)
    assert len(joined(room, "a").members) == 2, "b has not come, but may"
    room.sync("a", {}, instance_id="ia")
    assert list(room.members()) == ["a", "b"]
    room.keep_alive(SESSION_MS, "a")
    assert list(room.members()) == ["a"]


def test_absent_static_members_alone_make_no_generation() -> None:
    room = static_pair()
    room.join("c", needs_id=True)
    room.join("c", needs_id=True)
    room.leave("c")
    assert room.state is State.PREPARING
    generation = room.generations["a"]
    room.keep_alive(REBALANCE_MS + 5_000, "a", "b")
    assert room.state is State.PREPARING and room.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("b", instance_id="ib")
    room.join("a", instance_id="ia")
    assert joined(room, "a").generation == generation + 1


# --------------------------------------------------------------------------------------------------------- commits


def test_commits_without_members() -> None:
    room = Room()
    assert room.commit_error("", -1) == OK
    assert room.commit_error("", 3) == ErrorCode.GROUP_ID_NOT_FOUND
    room.stable("a")
    room.leave("a")
    assert room.commit_error("", -1) == OK
    assert room.commit_error("a", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_with_members() -> None:
    room = static_pair()
    generation = room.generations["a"]
    assert room.commit_error("a", generation) == OK
    assert room.commit_error("a", generation, instance_id="ia") == OK
    assert room.commit_error("a", generation, instance_id="ib") == ErrorCode.FENCED_INSTANCE_ID
    assert room.commit_error("a", generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert room.commit_error("a", -1) == ErrorCode.ILLEGAL_GENERATION
    assert room.commit_error("who", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.commit_error("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.commit_error("", -1, transactional=True) == OK
    room.join("a", instance_id="ia")
    assert room.state is State.PREPARING
    assert room.commit_error("b", generation) == OK
    room.join("b", instance_id="ib")
    assert room.state is State.COMPLETING
    assert room.commit_error("b", generation) == ErrorCode.ILLEGAL_GENERATION
    assert room.commit_error("b", generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.commit_error("b", generation + 1, transactional=True) == OK


# ---------------------------------------------------------------------------------------------------------- stored


def test_only_the_end_of_a_rebalance_is_stored() -> None:
    room = Room()
    room.join("a", needs_id=True)
    room.join("a", needs_id=True)
    room.heartbeat("a")
    assert room.facts == []
    room.sync("a", {"a": b"1"})
    assert len(room.facts) == 1
    room.join("b")
    room.join("a")
    assert len(room.facts) == 1
    room.leave("a", "b")
    assert len(room.facts) == 2


def test_a_restart_finds_the_group_as_it_was_stable() -> None:
    room = static_pair()
    again = room.restart()
    assert again.groups.describe(GROUP) == room.groups.describe(GROUP)
    assert again.heartbeat("a", instance_id="ia") == OK
    assert again.commit_error("b", 2, instance_id="ib") == OK
    assert again.join("b", member_id="", instance_id="ib") is not None
    assert again.join("a", instance_id="ia") is None, "the leader is known too"


def test_a_restart_during_a_rebalance_finds_the_generation_before() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    assert joined(room, "a").generation == 3
    again = room.restart()
    assert again.state is State.STABLE
    assert again.heartbeat("a") == ErrorCode.ILLEGAL_GENERATION
    again.rejoin("a", "b")
    assert again.generations == {"a": 3, "b": 3} and again.state is State.STABLE


def test_after_a_restart_silent_members_are_removed() -> None:
    again = Room().stable("a", "b").restart()
    again.pass_time(SESSION_MS - 1)
    again.heartbeat("a")
    again.pass_time(1)
    assert list(again.members()) == ["a"]


def test_a_restart_finds_an_empty_group_and_its_generation() -> None:
    room = Room().stable("a")
    room.leave("a")
    again = room.restart()
    assert again.state is State.EMPTY
    answer = again.join("b")
    assert answer is not None and answer.generation == 3


def test_facts_that_cannot_be_stored_put_the_group_back() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    room.sync("b")
    decision = room.groups.reload(GROUP, room.now_ms)
    room.take(decision)
    assert room.answers["b"] == Synced(ErrorCode.NOT_COORDINATOR)
    assert room.state is State.STABLE and room.members() == {"a": b"for a", "b": b"for b"}
    room.keep_alive(2 * REBALANCE_MS, "a", "b")
    assert room.state is State.EMPTY, "nobody has the stored generation, so nobody's heartbeat counts"


def test_500_members() -> None:
    room = Room(Limits(initial_delay_ms=1_000))
    for number in range(500):
        room.join(str(number), protocols=(("range", b"x" * 100),))
    room.pass_time(2_000)
    assert len(joined(room, "0").members) == 500
    for number in range(499, -1, -1):
        room.sync(str(number), {str(n): b"p" * 80 for n in range(500)} if number == 0 else None)
    assert room.state is State.STABLE


# ------------------------------------------------------------------------------------- time limits that must not linger


def test_a_static_member_that_came_back_has_a_session_of_its_own() -> None:
    room = static_pair()
    room.keep_alive(SESSION_MS - 1_000, "a")
    room.heartbeat("b")
    room.join("b", member_id="", instance_id="ib")
    room.keep_alive(SESSION_MS - 1_000, "a")
    assert list(room.members()) == ["a", "b"], "the session of its former id is nobody's any more"
    room.keep_alive(1_000, "a")
    assert list(room.members()) == ["a"], "and its own ends when it is silent"


def test_a_static_member_that_came_back_before_its_first_answer_waits_like_any_other() -> None:
    room = static_pair()
    room.join("c", instance_id="ic")
    room.join("c2", member_id="", instance_id="ic")
    room.keep_alive(2 * SESSION_MS, "a", "b")
    assert room.joined("c2") is None
    room.join("a", instance_id="ia")
    room.join("b", instance_id="ib")
    assert joined(room, "c2").error == OK


def test_a_static_member_that_came_back_still_has_to_ask_for_its_assignment() -> None:
    room = static_pair()
    room.join("a", instance_id="ia")
    room.join("b", instance_id="ib")
    room.sync("a", {"a": b"1", "b": b"2"}, instance_id="ia")
    room.join("b", member_id="", instance_id="ib")
    assert room.state is State.STABLE
    room.keep_alive(REBALANCE_MS, "a", "b")
    assert list(room.members()) == ["a"] and room.state is State.PREPARING


def test_one_that_has_asked_before_it_came_back_need_not_again() -> None:
    room = static_pair()
    room.join("b", member_id="", instance_id="ib")
    room.keep_alive(2 * REBALANCE_MS, "a", "b")
    assert room.state is State.STABLE and list(room.members()) == ["a", "b"]


def test_the_limit_for_assignments_ends_with_their_generation() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    room.keep_alive(REBALANCE_MS // 2, "a", "b")
    room.join("c")
    assert room.state is State.PREPARING
    room.keep_alive(REBALANCE_MS - 1_000, "a", "b")
    assert [name for name in room.members() if name in ("a", "b")] == ["a", "b"]


def test_a_sync_that_is_repeated_while_it_waits() -> None:
    room = Room().stable("a", "b")
    room.join("a")
    room.join("b")
    assert room.sync("b") is None
    command = Sync(GROUP, 3, room.ids["b"])
    assert room.groups.sync(command, "again", room.now_ms).responses == [("b", Synced(ErrorCode.REBALANCE_IN_PROGRESS))]
    room.sync("a", {"b": b"2"})
    assert room.answers["again"] == Synced(OK, "consumer", "range", b"2")


def test_a_leader_that_is_not_the_first_member_leads_after_a_restart_too() -> None:
    room = static_pair()
    room.join("b", instance_id="ib", protocols=STICKY)
    room.keep_alive(REBALANCE_MS, "a")
    assert joined(room, "b").leader == room.ids["b"], "a is in the group and first, but not here"
    room.sync("b", {}, instance_id="ib")
    again = room.restart()
    assert again.groups._live[GROUP].roster.leader == room.ids["b"]
    assert again.join("b", instance_id="ib", protocols=STICKY) is None, "so its join rebalances"


# ----------------------------------------------------------------------------------------------- what must be forgotten


def test_a_group_that_was_put_back_is_not_haunted_by_its_former_self() -> None:
    """Deadlines of the abandoned object must not remove members, nor write facts about them."""
    room = Room().stable("a", "b")
    room.join("c", needs_id=True)
    room.take(room.groups.reload(GROUP, room.now_ms))
    facts = len(room.facts)
    room.keep_alive(3 * REBALANCE_MS, "a", "b")
    assert room.state is State.STABLE and list(room.members()) == ["a", "b"]
    assert len(room.facts) == facts


def test_a_static_member_that_left_comes_as_a_new_one() -> None:
    room = static_pair()
    room.leave(Identity(room.ids["b"], "ib"))
    assert room.heartbeat("b", instance_id="ib") == ErrorCode.UNKNOWN_MEMBER_ID, "unknown, not fenced"
    assert room.join("b", member_id="", instance_id="ib") is None
    room.join("a", instance_id="ia")
    assert len(joined(room, "a").members) == 2


def test_an_id_that_leaves_before_anybody_joined_takes_the_group_along() -> None:
    room = Room()
    room.join("a", needs_id=True)
    assert room.leave("a") == [OK]
    assert room.state is State.DEAD


def test_a_waiting_member_of_a_full_group_may_ask_again() -> None:
    room = Room(Limits(initial_delay_ms=0, size_max=2)).stable("a", "b")
    room.join("a")
    room.join("c", needs_id=True)
    room.join("c", needs_id=True)
    answers = room.groups.join(_command(room, "a"), "again", room.now_ms, "unused").responses
    assert answers == [("a", Joined(ErrorCode.REBALANCE_IN_PROGRESS, room.ids["a"]))], "it is not turned away"


def test_syncs_of_a_group_that_does_not_exist() -> None:
    room = Room()
    assert room.sync("a", generation=1) == Synced(ErrorCode.UNKNOWN_MEMBER_ID)
    ((_, answer),) = room.groups.sync(Sync("", 1, "m"), "t", room.now_ms).responses
    assert answer == Synced(ErrorCode.INVALID_GROUP_ID)
