"""Answers leave in order and only when their facts are durable; time passes; failures put groups back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from cairnmq.broker.coordination.coordinator import LATE_MS, Coordinator
from cairnmq.broker.coordination.fact_log import FactLog, Stored
from cairnmq.broker.machine import MACHINE
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import Identity, Join, Joined, Limits, Response, State, Sync, Synced
from cairnmq.groups.offset_messages import OffsetCommit, Position
from cairnmq.groups.offsets import Committed, OffsetKey, Offsets, put
from unit.broker.rig import scenario, until

OK = ErrorCode.NONE
TOPIC = b"t" * 16
DAY_MS = 86_400_000
TODAY_MS = 20_000 * DAY_MS


class Journal:
    """Writes end when the test says, in the order it says."""

    def __init__(self) -> None:
        self.writes: list[tuple[Sequence[KeyedRecord], Stored]] = []

    def put(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        self.writes.append((facts, stored))

    async def stored(self, number: int = -1) -> None:
        self.writes[number][1](None)
        await turn()

    async def fails(self, number: int = -1) -> None:
        self.writes[number][1](Fault("the disk is full"))
        await turn()


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


class Desk:
    """A coordinator on a journal and a clock that the test holds."""

    def __init__(self, **limits: Any) -> None:
        self.journal = Journal()
        self.groups = Groups(Offsets(), Limits(**{"initial_delay_ms": 0, "session_min_ms": 1} | limits))
        self.facts = FactLog(self.journal.put, self.groups.apply)
        self.now_ms = 1_000_000
        self.wall_ahead_ms = 0
        self.coordinator = Coordinator(self.groups, self.facts, lambda: self.now_ms, self.date, MACHINE.uuid)
        self.answers: list[tuple[str, Response | None]] = []

    def date(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    def deliver(self, name: str) -> Any:
        return lambda answer: self.answers.append((name, answer))

    def join(self, name: str, member_id: str = "", **fields: Any) -> None:
        command = Join(
            "g", member_id, None, name, "", fields.pop("session_ms", 10_000), 20_000, "consumer", (("range", b""),),
            needs_id=False,
        )  # fmt: skip
        self.coordinator.join(command, self.deliver(name))

    def sync(self, name: str, member_id: str, generation: int) -> None:
        self.coordinator.sync(Sync("g", generation, member_id, assignments={member_id: b"x"}), self.deliver(name))

    def last(self) -> Any:
        return self.answers[-1][1]

    async def stable(self) -> str:
        """One member; its id."""
        self.join("a")
        joined = self.last()
        assert isinstance(joined, Joined) and joined.error == OK
        self.sync("a", joined.member_id, joined.generation)
        await turn()
        await self.journal.stored()
        assert self.last() == Synced(OK, "consumer", "range", b"x")
        self.answers.clear()
        return joined.member_id

    @property
    def state(self) -> State:
        described = self.groups.describe("g")
        return State.DEAD if described is None else described.state


@scenario
async def test_an_assignment_leaves_when_it_is_durable() -> None:
    desk = Desk()
    desk.join("a")
    joined = desk.last()
    assert joined.member_id.startswith("a-") and len(joined.member_id) == len("a-") + 36
    desk.sync("a", joined.member_id, 1)
    await turn()
    assert len(desk.answers) == 1, "the fact is on its way"
    await desk.journal.stored()
    assert desk.last() == Synced(OK, "consumer", "range", b"x")


@scenario
async def test_an_answer_without_facts_waits_for_those_decided_before_it() -> None:
    """A join that saw the new assignment must not be answered before that assignment is safe."""
    desk = Desk()
    desk.join("a")
    member = desk.last().member_id
    desk.sync("first", member, 1)
    desk.sync("again", member, 1)
    await turn()
    assert [name for name, _ in desk.answers] == ["a"]
    await desk.journal.stored()
    assert [name for name, _ in desk.answers] == ["a", "first", "again"]


@scenario
async def test_heartbeats_do_not_wait() -> None:
    desk = Desk()
    desk.join("a")
    member = desk.last().member_id
    desk.sync("a", member, 1)
    assert desk.coordinator.heartbeat("g", member, None, 1) == OK


@scenario
async def test_what_cannot_be_stored_is_not_promised_and_the_group_is_put_back() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.join("a", member)  # the leader joins again: generation 2
    desk.sync("a", member, 2)
    await turn()
    await desk.journal.fails()
    assert desk.last() is None
    assert desk.state is State.STABLE
    assert desk.coordinator.heartbeat("g", member, None, 1) == OK, "generation 1 is what is stored"
    assert desk.coordinator.heartbeat("g", member, None, 2) == ErrorCode.ILLEGAL_GENERATION


@scenario
async def test_a_failure_that_is_known_early_waits_for_its_turn() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.join("b", member)
    desk.sync("b", member, 2)
    desk.coordinator.leave("g", [Identity(member)], desk.deliver("leave"))
    await turn()
    assert len(desk.journal.writes) == 3
    desk.answers.clear()
    await desk.journal.fails(2)
    assert desk.answers == [], "the assignment was decided first"
    await desk.journal.stored(1)
    assert [(name, answer is not None) for name, answer in desk.answers] == [("b", True), ("leave", False)]
    assert desk.state is State.STABLE, "what is stored holds the member"
    assert desk.coordinator.heartbeat("g", member, None, 2) == OK


@scenario
async def test_a_later_success_outweighs_an_earlier_failure() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.join("b", member)
    desk.sync("b", member, 2)
    desk.coordinator.leave("g", [Identity(member)], desk.deliver("leave"))
    await turn()
    desk.answers.clear()
    await desk.journal.fails(1)
    await desk.journal.stored(2)
    assert [(name, answer is not None) for name, answer in desk.answers] == [("b", False), ("leave", True)]
    assert desk.state is State.EMPTY, "live is what is stored"


@scenario
async def test_sessions_end_by_themselves() -> None:
    desk = Desk()
    await desk.stable()
    desk.now_ms += 10_000
    desk.coordinator._tick()
    await turn()
    await desk.journal.stored()
    assert desk.state is State.EMPTY


@scenario
async def test_after_a_standstill_members_get_another_chance() -> None:
    """The process was stopped for longer than a session; heartbeats may wait in its sockets."""
    desk = Desk()
    member = await desk.stable()
    desk.now_ms += 10_000 + LATE_MS + 1
    desk.coordinator._tick()
    assert desk.coordinator.heartbeat("g", member, None, 1) == OK
    desk.now_ms += LATE_MS
    desk.coordinator._tick()
    assert desk.state is State.STABLE


@scenario
async def test_requests_of_others_do_not_cut_that_chance_short() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.now_ms += 10_000 + LATE_MS + 1
    desk.coordinator._tick()
    desk.coordinator.leave("other", [Identity("nobody")], desk.deliver("other"))
    assert desk.coordinator._timer_ms == desk.now_ms + LATE_MS
    assert desk.coordinator.heartbeat("g", member, None, 1) == OK
    desk.now_ms += LATE_MS
    desk.coordinator._tick()
    assert desk.state is State.STABLE
    for _ in range(2):  # a look at what is over already, and the session
        desk.now_ms = desk.coordinator._timer_ms
        desk.coordinator._tick()
    assert desk.state is State.EMPTY, "later sessions end as ever"


@scenario
async def test_the_timer_is_set_to_the_earliest_deadline() -> None:
    desk = Desk(initial_delay_ms=30)
    loop = asyncio.get_running_loop()
    base_ms = desk.now_ms - int(loop.time() * 1000)
    desk.coordinator._clock = lambda: base_ms + int(loop.time() * 1000)
    desk.join("a", session_ms=60_000)
    assert desk.answers == []
    await until(lambda: desk.answers)
    assert desk.last().generation == 1
    await desk.coordinator.close()


def commit(offset: int, member: str = "", generation: int | None = None) -> OffsetCommit:
    number = generation if generation is not None else 1 if member else -1
    return OffsetCommit("g", member, None, number, [Position(TOPIC, 0, offset)])


@scenario
async def test_a_commit_that_cannot_be_stored_leaves_the_group_alone() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.join("b")  # parked: the group rebalances
    told = desk.coordinator.commit(commit(5, member))
    await turn()
    await desk.journal.fails()
    assert (await told).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert desk.answers == [] and desk.state is State.PREPARING


@scenario
async def test_a_refused_commit_does_not_wait_for_one_on_its_way() -> None:
    desk = Desk()
    member = await desk.stable()
    stored = desk.coordinator.commit(commit(5, member))
    refused = desk.coordinator.commit(commit(6, member, generation=9))
    assert (await refused).errors == [ErrorCode.ILLEGAL_GENERATION]
    await desk.journal.stored()
    assert (await stored).errors == [OK]


@scenario
async def test_a_broker_that_stops_lets_nobody_wait() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.join("b")
    desk.join("a", member)  # both have come: generation 2, which b leads or follows
    desk.answers.clear()
    desk.join("c")
    assert desk.answers == []
    desk.coordinator.drain()
    assert [(name, answer.error) for name, answer in desk.answers if isinstance(answer, Joined)] == [
        ("c", ErrorCode.NOT_COORDINATOR)
    ]
    desk.join("d")
    desk.sync("d", member, 1)
    assert desk.answers[-2:] == [("d", None), ("d", None)]
    await desk.coordinator.close()


@scenario
async def test_closing_stores_what_was_decided() -> None:
    desk = Desk()
    desk.join("a")
    desk.sync("a", desk.last().member_id, 1)
    await turn()
    closing = asyncio.create_task(desk.coordinator.close())
    await turn()
    assert not closing.done()
    await desk.journal.stored()
    await closing
    assert isinstance(desk.last(), Synced)


@scenario
async def test_a_deletion_is_answered_when_it_is_durable() -> None:
    desk = Desk()
    desk.groups.apply(put(OffsetKey("g", TOPIC, 0), Committed(1)))
    deleting = asyncio.create_task(desk.coordinator.delete("g"))
    await turn()
    assert not deleting.done()
    await desk.journal.stored()
    assert await deleting == OK
    assert await desk.coordinator.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND


@scenario
async def test_a_deletion_that_cannot_be_stored() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.coordinator.leave("g", [Identity(member)], desk.deliver("leave"))
    await turn()
    await desk.journal.stored()
    deleting = asyncio.create_task(desk.coordinator.delete("g"))
    await turn()
    await desk.journal.fails()
    assert await deleting == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.state is State.EMPTY, "it still exists"


@scenario
async def test_old_offsets_go_but_not_while_a_commit_of_the_group_is_on_its_way() -> None:
    desk = Desk()
    desk.groups.apply(put(OffsetKey("g", TOPIC, 0), Committed(1, commit_ms=1)))
    key = put(OffsetKey("g", TOPIC, 0), Committed(2))[1]
    committing = desk.coordinator.commit(commit(2))
    await turn()
    desk.coordinator.start(lambda: 1000, 1, lambda topic_id: "t")
    await asyncio.sleep(0.02)
    assert len(desk.journal.writes) == 1, "nothing is dropped behind the commit's back"
    await desk.journal.stored()
    assert (await committing).errors == [OK]
    await asyncio.sleep(0.02)
    assert len(desk.journal.writes) == 1, "now it is new"
    desk.now_ms += 1000
    await until(lambda: len(desk.journal.writes) > 1)
    assert [facts for facts, _ in desk.journal.writes[1:2]] == [[("offset", key, None)]]
    desk.coordinator.drain()
    await turn()  # a round that had just decided writes too
    for _, stored in desk.journal.writes[1:]:
        stored(None)
    await desk.coordinator.close()


@scenario
async def test_a_commit_that_cannot_be_stored_says_so() -> None:
    desk = Desk()
    committing = desk.coordinator.commit(commit(2))
    await turn()
    await desk.journal.fails()
    assert (await committing).errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert list(desk.groups.ids()) == []


@pytest.mark.parametrize("wrong_days", [30, -30])
@scenario
async def test_a_wall_clock_that_was_wrong_at_the_start_and_is_set_right_drops_no_offsets(wrong_days: int) -> None:
    """Ahead: a commit dated by the right clock looks old beside the first. Behind: one of then looks old afterwards."""
    desk = Desk()
    desk.wall_ahead_ms = TODAY_MS + wrong_days * DAY_MS
    desk.coordinator.start(lambda: 7 * DAY_MS, 1, lambda topic_id: "t")
    await asyncio.sleep(0.01)
    desk.groups.apply(put(OffsetKey("g", TOPIC, 0), Committed(1, commit_ms=desk.date())))
    desk.now_ms += 60_000
    desk.wall_ahead_ms = TODAY_MS
    desk.groups.apply(put(OffsetKey("g", TOPIC, 1), Committed(2, commit_ms=desk.date())))
    for _ in range(3):
        desk.now_ms += 3_600_000
        await asyncio.sleep(0.01)
    assert desk.journal.writes == [], "all commits are a few hours old"
    await desk.coordinator.close()


@scenario
async def test_a_wall_clock_that_steps_forward_drops_no_offsets() -> None:
    desk = Desk()
    desk.wall_ahead_ms = TODAY_MS
    desk.coordinator.start(lambda: 7 * DAY_MS, 1, lambda topic_id: "t")
    desk.groups.apply(put(OffsetKey("g", TOPIC, 0), Committed(1, commit_ms=desk.date())))
    for step_days in (0, 30, 30, 0, 0):
        desk.wall_ahead_ms = TODAY_MS + step_days * DAY_MS
        desk.now_ms += DAY_MS
        await asyncio.sleep(0.01)
    assert desk.journal.writes == []
    for _ in range(10):
        desk.now_ms += DAY_MS
        await asyncio.sleep(0.01)
    assert len(desk.journal.writes) > 0, "when it is old, it goes"
    desk.coordinator.drain()
    await turn()
    for _, stored in desk.journal.writes:
        stored(None)
    await desk.coordinator.close()


@scenario
async def test_when_a_group_became_empty_is_dated_by_the_wall_clock_and_sessions_run_by_the_steady_one() -> None:
    desk = Desk()
    member = await desk.stable()
    desk.wall_ahead_ms = TODAY_MS
    desk.coordinator.leave("g", [Identity(member)], desk.deliver("leave"))
    await turn()
    await desk.journal.stored()
    group = desk.groups._live["g"]
    assert group.state is State.EMPTY and group.since_ms == desk.date()
    await desk.stable()
    desk.wall_ahead_ms += 30 * DAY_MS
    assert list(desk.groups.advance(desk.coordinator._now())) == [], "nobody is silent"


@scenario
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_that_are_still_on_their_way_end_with_their_transaction(*, commit: bool) -> None:
    """The group's journal may be slower than the one in which the transaction is prepared."""
    desk = Desk()
    held = asyncio.ensure_future(
        desk.coordinator.commit(OffsetCommit("g", "", None, -1, [Position(TOPIC, 0, 7)], producer_id=5))
    )
    await turn()
    ended = asyncio.ensure_future(desk.coordinator.end_offsets({"g"}, 5, commit))
    await turn()
    await desk.journal.stored()
    await desk.journal.stored()
    await asyncio.gather(held, ended)
    present = desk.groups.commits._offsets.get("g", TOPIC, 0)
    assert (present is not None and present.offset == 7) is commit
    assert not desk.groups.pending.holds("g"), "the producer's next transaction would take them for its own"


@scenario
async def test_offsets_that_cannot_be_stored_do_not_hold_up_a_transaction() -> None:
    desk = Desk()
    held = asyncio.ensure_future(
        desk.coordinator.commit(OffsetCommit("g", "", None, -1, [Position(TOPIC, 0, 7)], producer_id=5))
    )
    await turn()
    ended = asyncio.ensure_future(desk.coordinator.end_offsets({"g"}, 5, True))
    await turn()
    await desk.journal.fails()
    assert any((await held).errors)
    await ended
