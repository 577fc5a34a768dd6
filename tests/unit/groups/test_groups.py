"""All groups of a broker: which exist, what may be deleted, and which offsets become too old."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_messages import LEAVES
from cairnmq.groups.groups import Groups, Listed
from cairnmq.groups.memory_estimate import DEADLINE_BYTES
from cairnmq.groups.messages import Identity, Join, Joined, Limits, State
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.groups.pending import PendingKey
from unit.groups.classic_group_harness import GROUP, RANGE, SESSION_MS, Room, subscription
from unit.groups.consumer_group_harness import Hall

OK = ErrorCode.NONE
ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
NAMES = {ORDERS: "orders", PAYMENTS: "payments"}
WEEK_MS = 7 * 24 * 3_600_000
HOUR_MS = 3_600_000


def commit(
    room: Room, topic_id: bytes = ORDERS, partition: int = 0, *, group: str = GROUP, expire_ms: int = -1
) -> None:
    room.apply([put(OffsetKey(group, topic_id, partition), Committed(7, -1, "", room.now_ms, expire_ms))])


def expire(room: Room, group: str = GROUP) -> list[tuple[str, str]]:
    """What became too old: (space, topic)."""
    decision = room.groups.expire_offsets(group, room.now_ms, WEEK_MS, NAMES.get)
    before = {topic_id: dict(rows) for topic_id, rows in room.groups.offsets.topics(group).items()}
    room.take(decision)
    after = room.groups.offsets.topics(group)
    gone = [
        ("offset", NAMES[topic_id])
        for topic_id, rows in before.items()
        for partition in rows
        if partition not in after.get(topic_id, {})
    ]
    return gone + [("group", "") for space, _, _ in decision.records if space == "group"]


# ---------------------------------------------------------------------------------------------------------- expiry


def test_offsets_of_readers_without_a_membership_age_from_their_commit() -> None:
    room = Room()
    commit(room, ORDERS)
    room.now_ms += WEEK_MS - 1
    commit(room, PAYMENTS)
    assert expire(room) == []
    room.now_ms += 1
    assert expire(room) == [("offset", "orders")]
    assert list(room.groups.ids()) == [GROUP]
    room.now_ms += WEEK_MS
    assert expire(room) == [("offset", "payments")]
    assert list(room.groups.ids()) == [], "with its last offset the group is gone"


def test_offsets_of_a_group_age_from_the_moment_it_became_empty() -> None:
    room = Room().stable("a")
    commit(room)
    room.keep_alive(HOUR_MS, "a")
    room.now_ms += WEEK_MS  # no deadline is looked at: the member lives on
    room.leave("a")
    room.now_ms += WEEK_MS - 1
    assert expire(room) == []
    room.now_ms += 1
    assert expire(room) == [("offset", "orders"), ("group", "")]
    assert room.state is State.DEAD and room.stored == {}


def test_that_moment_outlives_a_restart() -> None:
    room = Room().stable("a")
    commit(room)
    room.now_ms += HOUR_MS
    room.leave("a")
    room.now_ms += WEEK_MS // 2
    room = room.restart()
    room.now_ms += WEEK_MS // 2 - 1
    assert expire(room) == []
    room.now_ms += 1
    assert expire(room) == [("offset", "orders"), ("group", "")]


def test_an_offset_reset_in_an_empty_group_lives_from_then_on() -> None:
    """Kafka lets it die with the others; whoever has just set an offset wants to use it."""
    room = Room().stable("a")
    room.leave("a")
    room.now_ms += WEEK_MS - HOUR_MS
    commit(room)
    room.now_ms += HOUR_MS
    assert expire(room) == []
    room.now_ms += WEEK_MS - HOUR_MS
    assert expire(room) == [("offset", "orders"), ("group", "")]


def test_what_a_group_reads_never_ages_and_what_it_does_not_read_does() -> None:
    room = Room().stable("a")
    commit(room, ORDERS)
    commit(room, PAYMENTS)
    room.now_ms += WEEK_MS - 1
    assert expire(room) == []
    room.now_ms += 1
    assert expire(room) == [("offset", "payments")]
    room.now_ms += 10 * WEEK_MS
    assert expire(room) == [] and room.state is State.STABLE


@pytest.mark.parametrize("protocols", [(("range", b"??"),), (("range", b""),)])
def test_nothing_ages_if_the_subscriptions_cannot_be_read(protocols: tuple[tuple[str, bytes], ...]) -> None:
    room = Room().stable("a", protocols=protocols)
    commit(room, PAYMENTS)
    room.now_ms += 2 * WEEK_MS
    assert expire(room) == []


def test_nothing_ages_in_a_group_of_another_type_with_members() -> None:
    room = Room().stable("a", protocol_type="connect")
    commit(room)
    room.now_ms += 2 * WEEK_MS
    assert expire(room) == []


@pytest.mark.parametrize("state", [State.PREPARING, State.COMPLETING])
def test_nothing_ages_during_a_rebalance(state: State) -> None:
    room = Room().stable("a", "b")
    commit(room, PAYMENTS)
    room.join("a")
    if state is State.COMPLETING:
        room.join("b")
    assert room.state is state
    room.now_ms += 2 * WEEK_MS
    assert expire(room) == []


def test_a_retention_time_that_the_client_gave_counts_instead() -> None:
    room = Room()
    commit(room, expire_ms=room.now_ms + HOUR_MS)
    room.now_ms += HOUR_MS - 1
    assert expire(room) == []
    room.now_ms += 1
    assert expire(room) == [("offset", "orders")]


def test_a_group_without_members_and_offsets_is_forgotten_but_not_one_that_somebody_is_about_to_join() -> None:
    room = Room().stable("a")
    room.leave("a")
    room.join("b", needs_id=True)
    assert expire(room) == []
    room.pass_time(SESSION_MS)
    assert expire(room) == [("group", "")]


# --------------------------------------------------------------------------------------------------- what there is


def test_groups_through_members_and_through_offsets_alone() -> None:
    room = Room().stable("a")
    commit(room, group="simple")
    assert sorted(room.groups.listed(), key=lambda one: one.group_id) == [
        Listed(GROUP, "consumer", State.STABLE, "classic", 1),
        Listed("simple", "", State.EMPTY, "classic"),
    ]
    described = room.groups.describe("simple")
    assert described is not None
    assert (described.state, described.protocol_type, described.members) == (State.EMPTY, "", ())
    assert room.groups.describe("nothing") is None


def test_metadata_and_assignments_are_shown_only_while_stable() -> None:
    room = Room().stable("a", "b")
    stable = room.groups.describe(GROUP)
    assert stable is not None and stable.protocol == "range"
    assert [(m.client_id, m.client_host, m.metadata, m.assignment) for m in stable.members] == [
        ("a", "/10.0.0.1", RANGE[0][1], b"for a"),
        ("b", "/10.0.0.1", RANGE[0][1], b"for b"),
    ]
    for name in ("a", "b"):
        room.join(name)
        moving = room.groups.describe(GROUP)
        assert moving is not None and moving.protocol == "" and moving.protocol_type == "consumer"
        assert {(m.metadata, m.assignment) for m in moving.members} == {(b"", b"")}


# -------------------------------------------------------------------------------------------------------- deleting


def test_a_group_is_deleted_with_its_offsets() -> None:
    room = Room().stable("a")
    commit(room)
    room.leave("a")
    error, decision = room.groups.delete(GROUP)
    assert error == OK
    room.take(decision)
    assert room.stored == {} and room.state is State.DEAD
    assert room.groups.delete(GROUP)[0] == ErrorCode.GROUP_ID_NOT_FOUND
    assert room.restart().state is State.DEAD


def test_a_group_of_offsets_alone_is_deleted_too() -> None:
    room = Room()
    commit(room)
    error, decision = room.groups.delete(GROUP)
    room.take(decision)
    assert error == OK and room.stored == {}


@pytest.mark.parametrize("state", [State.PREPARING, State.COMPLETING, State.STABLE])
def test_a_group_with_members_is_not_deleted(state: State) -> None:
    room = Room().stable("a", "b")
    if state is not State.STABLE:
        room.join("a")
    if state is State.COMPLETING:
        room.join("b")
    assert room.state is state
    error, decision = room.groups.delete(GROUP)
    assert error == ErrorCode.NON_EMPTY_GROUP and not decision.records


def test_an_id_that_was_given_before_the_deletion_is_unknown_after_it() -> None:
    room = Room().stable("a")
    room.leave("a")
    room.join("b", needs_id=True)
    room.take(room.groups.delete(GROUP)[1])
    answer = room.join("b", needs_id=True)
    assert answer is not None and answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    room.pass_time(10 * SESSION_MS)
    assert room.state is State.DEAD


def test_whose_offsets_may_be_deleted() -> None:
    room = Room()
    error = room.groups.commits.delete_error
    assert error("") == ErrorCode.INVALID_GROUP_ID
    assert error(GROUP) == ErrorCode.GROUP_ID_NOT_FOUND
    commit(room)
    assert error(GROUP) == OK
    room.stable("a")
    assert error(GROUP) == OK, "of topics that nobody reads"
    assert room.groups.commits.reads(GROUP, "orders") and not room.groups.commits.reads(GROUP, "payments")
    room.leave("a")
    assert not room.groups.commits.reads(GROUP, "orders")
    room.join("w", protocol_type="connect", protocols=(("default", b""),))
    assert error(GROUP) == ErrorCode.NON_EMPTY_GROUP
    assert not room.groups.commits.reads(GROUP, "orders")


def test_what_is_read_changes_with_the_subscriptions() -> None:
    room = Room().stable("a")
    assert not room.groups.commits.reads(GROUP, "payments")
    room.join("a", protocols=(("range", subscription("payments")),))
    room.sync("a", {})
    assert room.groups.commits.reads(GROUP, "payments") and not room.groups.commits.reads(GROUP, "orders")


# ------------------------------------------------------------------------------------------------ groups and time


def test_deadlines_are_met_in_order_and_only_once() -> None:
    room = Room()
    room.join("a", session_ms=8_000)
    room.sync("a", {})
    wake_ms = room.groups.wake_ms
    room.pass_time(5_000)
    room.heartbeat("a")
    assert room.groups.wake_ms == wake_ms, "a heartbeat moves no heap entry"
    room.pass_time(7_999)
    assert room.state is State.STABLE
    room.pass_time(1)
    assert room.state is State.EMPTY
    assert list(room.groups.advance(room.now_ms + 10**9)) == []


def test_a_million_heartbeats_leave_the_heap_small() -> None:
    room = Room().stable("a", "b")
    for _ in range(5_000):
        room.pass_time(100)
        room.heartbeat("a")
        room.heartbeat("b")
    assert len(room.groups._deadlines) < 10


def test_groups_do_not_touch_one_another() -> None:
    room = Room().stable("a")
    identity = Identity(room.ids["a"])
    ((_, left),) = room.groups.leave("other", [identity], "t", room.now_ms).responses
    assert (left.error, left.members) == (OK, [(identity, ErrorCode.UNKNOWN_MEMBER_ID)])
    assert room.groups.heartbeat("other", room.ids["a"], None, 1, room.now_ms) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.state is State.STABLE


def test_a_stored_group_reads_back_as_it_was_written() -> None:
    """Journals and checkpoints of older versions hold this form."""
    room = Room()
    room.join("a", instance_id="i", protocol_type="consumer", protocols=(("range", b"m"),))
    room.sync("a", {"a": b"x"}, instance_id="i")
    (space, key, value), *rest = room.facts
    assert not rest and value is not None
    assert (space, key) == ("group", b"g")
    assert value.hex() == (
        "97a7636c6173736963a8636f6e73756d657201a572616e6765a3612d31ce000f424091"
        "98a3612d31a169a161a92f31302e302e302e31cd2710cdea609192a572616e6765c4016dc40178"
    )
    again = Groups.load([(key, value)], room.groups.offsets, Limits())
    assert again.describe(GROUP) == room.groups.describe(GROUP)


def test_a_deleted_group_does_not_come_back() -> None:
    room = Room().stable("a")
    room.leave("a")
    room.take(room.groups.delete(GROUP)[1])
    room.take(room.groups.reload(GROUP, room.now_ms))
    assert room.state is State.DEAD


def test_a_group_with_members_and_without_offsets_stays() -> None:
    room = Room().stable("a")
    room.now_ms += 2 * WEEK_MS
    assert expire(room) == [] and room.state is State.STABLE


def test_what_is_not_read_ages_from_its_commit_not_from_the_last_rebalance() -> None:
    room = Room().stable("a")
    commit(room, PAYMENTS)
    room.now_ms += HOUR_MS
    room.rejoin("a")
    room.now_ms += WEEK_MS - HOUR_MS
    assert expire(room) == [("offset", "payments")]


def test_a_group_whose_subscriptions_cannot_be_read_may_read_anything() -> None:
    room = Room().stable("a", protocols=(("range", b""),))
    assert room.groups.commits.reads(GROUP, "orders")


def test_offsets_of_an_empty_group_of_any_type_may_be_deleted() -> None:
    room = Room().stable("w", protocol_type="connect")
    assert room.groups.commits.delete_error(GROUP) == ErrorCode.NON_EMPTY_GROUP
    room.leave("w")
    assert room.groups.commits.delete_error(GROUP) == OK


def test_a_static_member_that_came_back_reads_what_it_says_now() -> None:
    room = Room()
    room.join("a", instance_id="i")
    room.sync("a", {}, instance_id="i")
    assert not room.groups.commits.reads(GROUP, "payments")
    answer = room.join("a", member_id="", instance_id="i", protocols=(("range", subscription("payments")),))
    assert answer is not None and answer.error == OK and room.state is State.STABLE
    assert room.groups.commits.reads(GROUP, "payments")


def test_no_more_groups_than_allowed() -> None:
    room = Room(Limits(initial_delay_ms=0, groups_max=1)).stable("a")
    room.rejoin("a")
    new = Join("other", "", None, "b", "/10.0.0.1", SESSION_MS, SESSION_MS, "consumer", RANGE, needs_id=False)
    ((_, told),) = room.groups.join(new, "b", room.now_ms, "b-1").responses
    assert isinstance(told, Joined) and told.error == ErrorCode.POLICY_VIOLATION
    assert room.groups.commits.error(OffsetCommit("other", "", None, -1), room.now_ms) == OK, "none has offsets yet"
    commit(room, group="other")
    assert room.groups.commits.error(OffsetCommit("other", "", None, -1), room.now_ms) == OK
    assert room.groups.commits.error(OffsetCommit("third", "", None, -1), room.now_ms) == ErrorCode.POLICY_VIOLATION


def test_groups_that_wait_for_a_transaction_count() -> None:
    room = Room(Limits(groups_max=2))
    key, offset = PendingKey("waits", 9, ORDERS, 0), Committed(7, -1, "", room.now_ms)

    def error(group: str) -> ErrorCode:
        return room.groups.commits.error(OffsetCommit(group, "", None, -1, producer_id=9), room.now_ms)

    room.apply([room.groups.pending.hold(key, offset, room.groups.offsets)])
    assert [error(group) for group in ("waits", "second")] == [OK, OK]
    commit(room, group="second")
    assert [error(group) for group in ("waits", "second", "third")] == [OK, OK, ErrorCode.POLICY_VIOLATION]
    room.apply(room.groups.pending.end("waits", 9, commit=False, offsets=room.groups.offsets))
    assert error("third") == OK


def test_no_more_groups_of_the_consumer_protocol_than_allowed() -> None:
    told = Hall(Limits(groups_max=0)).join("a")
    assert told.error == ErrorCode.POLICY_VIOLATION and "cairn.groups.max" in (told.message or "")


def test_what_members_of_the_consumer_protocol_brought_is_counted() -> None:
    hall = Hall()
    empty = hall.groups.held_bytes()
    assert empty == 0
    hall.join("a", *(f"topic-{number}" for number in range(100)), rack_id="r" * 1000, instance_id="i" * 1000)
    names = sum(len(f"topic-{number}") for number in range(100))
    held, stored = hall.groups.held_bytes(), sum(map(len, hall.stored.values()))
    assert stored > names + 2000, "the member is stored too"
    assert held >= names + 2000 + stored
    assert hall.join("b", regex="x" * 500).error == OK
    assert hall.groups.held_bytes() > held + 2 * 500
    hall.say("a", LEAVES)
    hall.say("b", LEAVES)
    assert hall.groups.held_bytes() < 2000, "a few time limits and the header"


def test_what_classic_members_brought_to_such_a_group_is_counted() -> None:
    hall = Hall()
    hall.join("a")
    before = hall.groups.held_bytes()
    metadata = subscription("orders") + bytes(50_000)
    assert hall.classic_join("x", protocols=(("range", metadata),)) is not None
    assert hall.groups.held_bytes() > before + 2 * len(metadata), "live and stored"

    def growth(metadata: bytes, member_id: str = "x") -> int:
        protocols = (("range", metadata),)
        return hall.groups.join_growth(Join(GROUP, member_id, None, "client-x", "", 10_000, 1, "consumer", protocols))

    assert growth(metadata) == 0
    assert growth(metadata, "y") > 50_000
    many = subscription(*(f"t{number}" for number in range(100)))
    assert 0 < growth(many + bytes(len(metadata) - len(many))) < 10_000, "names are heavier than their bytes"


def test_ids_that_nobody_uses_are_counted_until_their_time_is_over() -> None:
    hall = Hall()
    for number in range(100):
        hall.classic_join(f"x-{number}", needs_id=True)
    assert hall.groups.held_bytes() >= 100 * DEADLINE_BYTES
    for number in range(100):
        hall.classic_leave(Identity(f"x-{number}"))
    assert hall.groups.held_bytes() >= 100 * DEADLINE_BYTES, "what is over stays in line for its time"
    hall.pass_time(SESSION_MS)
    assert hall.groups.held_bytes() == 0
