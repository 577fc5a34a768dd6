"""Groups under any sequence of requests, passing time, lost writes and crashes: what is stored is what lives.

A rule-based machine plays members that know only what they were answered. Facts reach the store one by one, and a crash
may come at any moment: facts not stored yet are gone, and so are the answers that waited for them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import GroupDecision, Identity, Join, Joined, Limits, Response, State, Sync, Synced
from cairnmq.groups.offset_messages import OffsetCommit, Position
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.stored_group import decode

GROUPS = ("g", "h")
TOPICS = (b"a" * 16, b"b" * 16)
SESSION_MS, REBALANCE_MS, RETENTION_MS = 10_000, 30_000, 100_000
OK = ErrorCode.NONE
# Kafka's own answers to members; anything else is a bug.
JOIN_ERRORS = {
    OK,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.NOT_COORDINATOR,
}
SYNC_ERRORS = {
    OK,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Player:
    """A client: its group, what it calls itself, and what it was told."""

    def __init__(self, group: str, name: str, instance_id: str | None, protocols: tuple[str, ...]) -> None:
        self.group = group
        self.name = name
        self.instance_id = instance_id
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.told: Joined | None = None
        self.waiting = 0

    def __repr__(self) -> str:
        return self.name


class Machine(RuleBasedStateMachine):
    players = Bundle("players")

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([2, 100]))
    def begin(self, delay_ms: int, size_max: int) -> None:
        self.limits = Limits(initial_delay_ms=delay_ms, size_max=size_max, new_member_ms=50_000)
        self.now_ms = 1_000_000
        self.count = 0
        self.stored: dict[tuple[str, bytes], bytes] = {}
        self.groups = Groups(Offsets(), self.limits)
        # Per group: facts and the answers behind them, not stored yet. Journals keep the order of decisions.
        self.under_way: deque[tuple[str, list[KeyedRecord], list[tuple[Any, Response]]]] = deque()
        self.owners: dict[bytes, str] = {}
        self.alive: list[Player] = []

    # ------------------------------------------------------------------------------------------ what members do

    @rule(
        target=players,
        group=st.sampled_from(GROUPS),
        instance=st.sampled_from([None, "i", "j"]),
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]),
    )
    def arrive(self, group: str, instance: str | None, protocols: tuple[str, ...]) -> Player:
        self.count += 1
        return self.came(Player(group, f"p{self.count}", instance, protocols))

    def came(self, player: Player) -> Player:
        self.alive.append(player)
        self.join(player, True)
        return player

    @rule(group=st.sampled_from(GROUPS))
    def settle(self, group: str) -> None:
        """Members do what clients do until the group is stable: without this, chance rarely gets two of them there."""
        here = [player for player in self.alive if player.group == group]
        for _ in range(2):
            for player in here:
                if not player.waiting:
                    self.join(player, True)
            self.store(10**6)
            self.time_passes(self.limits.initial_delay_ms)
        for player in here:
            if not player.waiting:
                self.sync(player)
        self.store(10**6)

    @rule(player=players, needs_id=st.booleans())
    def join(self, player: Player, needs_id: bool) -> None:
        self.count += 1
        command = Join(
            player.group,
            player.member_id,
            player.instance_id,
            player.name,
            "/host",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            tuple((name, b"") for name in player.protocols),
            needs_id=needs_id,
            may_skip=needs_id,
        )
        player.waiting += 1
        self.carry_out(player.group, self.groups.join(command, player, self.now_ms, f"{player.name}-{self.count}"))

    @rule(player=players, protocols=st.sampled_from([("range",), ("range", "sticky")]))
    def change(self, player: Player, protocols: tuple[str, ...]) -> None:
        player.protocols = protocols
        self.join(player, True)

    @rule(player=players)
    def sync(self, player: Player) -> None:
        """The leader gives each member something that nobody else was ever given."""
        self.count += 1
        members = player.told.members if player.told else ()
        given = {member.member_id: f"{self.count}/{number}".encode() for number, member in enumerate(members)}
        command = Sync(player.group, player.generation, player.member_id, player.instance_id, assignments=given)
        player.waiting += 1
        self.carry_out(player.group, self.groups.sync(command, player, self.now_ms))

    @rule(player=players)
    def heartbeat(self, player: Player) -> None:
        self.groups.heartbeat(player.group, player.member_id, player.instance_id, player.generation, self.now_ms)

    @rule(player=consumes(players))
    def leave(self, player: Player) -> None:
        self.alive.remove(player)
        leaving = Identity(player.member_id, player.instance_id)
        self.carry_out(player.group, self.groups.leave(player.group, [leaving], None, self.now_ms))

    @rule(player=consumes(players))
    def vanish(self, player: Player) -> None:
        """kill -9 of a client: nothing is said."""
        self.alive.remove(player)

    @rule(target=players, player=consumes(players))
    def restart_client(self, player: Player) -> Player:
        """A static member comes back under a new id; a dynamic one is somebody new."""
        self.alive.remove(player)
        return self.came(Player(player.group, player.name, player.instance_id, player.protocols))

    @rule(player=players, topic=st.sampled_from(TOPICS), partition=st.integers(0, 1), offset=st.integers(0, 9))
    def commit(self, player: Player, topic: bytes, partition: int, offset: int) -> None:
        command = OffsetCommit(
            player.group, player.member_id, player.instance_id, player.generation, [Position(topic, partition, offset)]
        )
        decision = self.groups.commits.commit(command, None, self.now_ms)
        ((_, told),) = decision.responses
        if told.errors == [OK]:
            self.under_way.append((player.group, decision.records, []))

    # ------------------------------------------------------------------------------------- what administrators do

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        before = self.groups.describe(group)
        error, decision = self.groups.delete(group)
        assert (error == ErrorCode.NON_EMPTY_GROUP) == (before is not None and before.state is not State.EMPTY)
        self.carry_out(group, decision)

    @rule(group=st.sampled_from(GROUPS))
    def expire_offsets(self, group: str) -> None:
        if any(at == group for at, _, _ in self.under_way):
            return  # as the coordinator does: what looks old may be new in a moment
        decision = self.groups.expire_offsets(group, self.now_ms, RETENTION_MS, lambda topic: "t")
        self.carry_out(group, decision)

    # --------------------------------------------------------------------------------------------- what happens

    @rule(ms=st.sampled_from([1, 1_000, 4_000, SESSION_MS, REBALANCE_MS, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.groups.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.groups.wake_ms)
            for group, decision in self.groups.advance(self.now_ms):
                self.carry_out(group, decision)
        self.now_ms = end_ms

    @rule(count=st.integers(1, 5))
    def store(self, count: int) -> None:
        for _ in range(min(count, len(self.under_way))):
            _, facts, answers = self.under_way.popleft()
            for fact in facts:
                self.groups.apply(fact)
                space, key, value = fact
                if value is None:
                    self.stored.pop((space, key), None)
                else:
                    self.stored[space, key] = value
            self.answer(answers)

    @rule()
    def crash(self) -> None:
        """The broker dies: what was not stored never happened, and nobody was told that it did."""
        self.under_way.clear()
        for player in self.alive:
            player.waiting = 0
        self.groups = self.loaded()
        self.groups.resume(self.now_ms)

    @rule(group=st.sampled_from(GROUPS))
    def lose_a_write(self, group: str) -> None:
        """The journal refuses everything from here on; the group is put back to what is stored."""
        kept = deque(entry for entry in self.under_way if entry[0] != group)
        if len(kept) < len(self.under_way):
            for _, _, answers in (entry for entry in self.under_way if entry[0] == group):
                for player, _ in answers:
                    if isinstance(player, Player):
                        player.waiting -= 1
            self.under_way = kept
            self.carry_out(group, self.groups.reload(group, self.now_ms))

    # ------------------------------------------------------------------------------------------------- the store

    def carry_out(self, group: str, decision: GroupDecision) -> None:
        answers = list(decision.responses)
        if decision.records or any(at == group for at, _, _ in self.under_way):
            self.under_way.append((group, list(decision.records), answers))
        else:
            self.answer(answers)

    def answer(self, answers: list[tuple[Any, Response]]) -> None:
        for player, answer in answers:
            if not isinstance(player, Player):
                continue
            player.waiting -= 1
            if isinstance(answer, Joined):
                assert answer.error in JOIN_ERRORS, answer
                if answer.error in (OK, ErrorCode.MEMBER_ID_REQUIRED):
                    player.member_id = answer.member_id
                if answer.error == OK:
                    player.generation, player.told = answer.generation, answer
                elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    player.member_id, player.generation, player.told = "", -1, None
            elif isinstance(answer, Synced):
                assert answer.error in SYNC_ERRORS, answer
                if answer.error == OK:
                    self.owns(player, answer.assignment)

    def owns(self, player: Player, assignment: bytes) -> None:
        """Invariant 9: what one member was given is never given to another (a static one may have a new id)."""
        if assignment:
            who = player.instance_id or player.member_id
            assert self.owners.setdefault(assignment, who) == who

    def loaded(self) -> Groups:
        offsets = Offsets.load((key, value) for (space, key), value in self.stored.items() if space == "offset")
        rows = [(key, value) for (space, key), value in self.stored.items() if space == "group"]
        return Groups.load(rows, offsets, self.limits)

    # ----------------------------------------------------------------------------------------- what always holds

    @invariant()
    def replaying_gives_the_live_state(self) -> None:
        """Of what is stored, all of it; of live groups, those that are at rest with nothing on its way."""
        if not hasattr(self, "groups"):
            return
        again = self.loaded()
        assert again._stored == self.groups._stored
        assert again.offsets._groups == self.groups.offsets._groups
        moving = {group for group, _, _ in self.under_way}
        for group in GROUPS:
            live = self.groups._live.get(group)
            if group in moving or live is None or live.state not in (State.STABLE, State.EMPTY):
                continue
            if live.generation == 0:
                continue  # ids were given, nobody has come yet
            twin = again._live.get(group)
            assert twin is not None, f"{group} lives and is not stored"
            assert twin.record() == live.record()
            assert twin.roster.supporters == +live.roster.supporters and twin.roster.static == live.roster.static
        for group in again._live:
            assert group in moving or group in self.groups._live, f"{group} is stored and does not live"

    @invariant()
    def a_group_agrees_with_itself(self) -> None:
        for group in getattr(self, "groups", Groups(Offsets(), Limits()))._live.values():
            check(group, self.limits)

    def teardown(self) -> None:
        """Nobody waits for ever: after the longest limits every request has been answered."""
        if not hasattr(self, "groups"):
            return
        for _ in range(8):
            self.time_passes(RETENTION_MS)
            self.store(10**6)
        for group in self.groups._live.values():
            assert not group.members and not group.pending, "silent members are gone"
            assert group.roster.joining == 0


def check(group: ClassicGroup, limits: Limits) -> None:
    members = group.members
    assert group.roster.joining == sum(member.join is not None for member in members.values())
    assert set(group.roster.static.values()) <= members.keys()
    assert {m.instance_id: key for key, m in members.items() if m.instance_id is not None} == group.roster.static
    assert group.roster.unsynced <= members.keys()
    assert group.roster.leader is None or group.roster.leader in members
    assert not group.pending.keys() & members.keys()
    assert all(key == member.member_id == member.session.member_id for key, member in members.items())
    if group.state is State.EMPTY:
        assert not members
    if group.state in (State.COMPLETING, State.STABLE):
        assert members and group.roster.leader in members and group.protocol is not None
        assert all(member.join is None for member in members.values())
        assert all(group.protocol in dict(member.protocols) for member in members.values())
    if group.state is State.STABLE:
        assert all(member.sync is None for member in members.values())
        given = [member.assignment for member in members.values() if member.assignment]
        assert len(given) == len(set(given)), "two members own the same"
    for member in members.values():
        waits = member.join is not None or member.sync is not None
        assert waits or member.session.due_ms < 1 << 62, f"{member.member_id} could stay for ever"


TestGroups = Machine.TestCase
TestGroups.settings = settings(max_examples=200, stateful_step_count=50)


def test_a_group_loaded_twice_is_the_same() -> None:
    """`load` takes nothing from anywhere but the record."""
    record = decode(bytes.fromhex("97a7636c6173736963a8636f6e73756d657202c0c0ce000f424090"))
    limits, deadlines = Limits(), Deadlines[ClassicGroup]()
    one, two = (ClassicGroup.load("g", record, limits, deadlines) for _ in range(2))
    assert one.record() == two.record() == record and one.state is State.EMPTY
