"""Groups of the consumer protocol under any sequence of heartbeats, topic changes, lost answers and crashes.

A rule-based machine plays members of both protocols that know only what they were answered. Facts reach the store one
by one: a crash may come between two facts of one decision. At no moment may two members that the group still takes for
members own the same partition, and members that go on with their heartbeats come to own everything.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups import partitions as parts
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.consumer_messages import JOINS, LEAVES, LEAVES_FOR_NOW, Report
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import (
    ConsumerLimits,
    GroupDecision,
    Identity,
    Join,
    Joined,
    Limits,
    Response,
    Standing,
    State,
    Sync,
    Synced,
)
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.partitions import NOTHING, Partitions
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE
from cairnmq.groups.stored_group import SPACE
from cairnmq.groups.subscription import partitions_of, read_assignment
from cairnmq.testing.fake_topics import FakeTopics
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

G = "g"
SESSION_MS, REBALANCE_MS = 10_000, 30_000
NAMES = ("a", "b", "c")
OK = ErrorCode.NONE
REPORT_ERRORS = {
    OK,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
       ErrorCode.GROUP_ID_NOT_FOUND}  # fmt: skip


class Player:
    """A client: what it calls itself, what it was told, and what it reads."""

    def __init__(self, name: str, instance: str | None, topics: tuple[str, ...], regex: str | None) -> None:
        self.name = name
        self.instance = instance
        self.topics = topics
        self.regex = regex
        self.member_id = name
        self.epoch = JOINS
        self.owned: Partitions = NOTHING
        self.unsure = True  # its next heartbeat says everything

    def __repr__(self) -> str:
        return self.name

    def out(self) -> None:
        self.owned, self.epoch, self.unsure = NOTHING, JOINS, True


class OldPlayer(Player):
    """A client of the classic protocol that gives everything up before it joins."""

    def __init__(self, name: str, instance: str | None, topics: tuple[str, ...]) -> None:
        super().__init__(name, instance, topics, None)
        self.member_id = ""
        self.epoch = -1
        self.waiting = 0
        self.told: Joined | None = None

    def out(self) -> None:
        super().out()
        self.member_id, self.epoch, self.told = "", -1, None

    def metadata(self) -> bytes:
        return b"\0\1" + b"".join(encode(ConsumerProtocolSubscription(topics=list(self.topics)), 1))


class Machine(RuleBasedStateMachine):
    players = Bundle("players")
    old_players = Bundle("old_players")

    @initialize(downgrade=st.booleans(), size_max=st.sampled_from([3, 100]))
    def begin(self, downgrade: bool, size_max: int) -> None:
        consumer = ConsumerLimits(session_ms=SESSION_MS, size_max=size_max, may_downgrade=downgrade)
        self.limits = Limits(initial_delay_ms=0, new_member_ms=50_000, consumer=consumer)
        self.now_ms = 1_000_000
        self.count = 0
        self.stored: dict[tuple[str, bytes], bytes] = {}
        self.groups = Groups(Offsets(), self.limits)
        self.under_way: deque[tuple[list[KeyedRecord], list[tuple[Any, Response]]]] = deque()
        self.alive: list[Player] = []
        self.topics = FakeTopics()
        self.topics.put("a", 3)
        self.look()

    def look(self) -> None:
        self.groups.view = self.topics.view

    # --------------------------------------------------------------------------------------------- what topics do

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def change_topic(self, name: str, count: int) -> None:
        """Made, grown, or made anew under another id."""
        self.topics.put(name, count)
        self.look()

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        self.topics.delete(name)
        self.look()

    # -------------------------------------------------------------------------------------------- what members do

    @rule(
        target=players,
        instance=st.sampled_from([None, None, "i", "j"]),
        topics=st.sampled_from([("a",), ("a", "b"), ("b", "c"), ()]),
        regex=st.sampled_from([None, None, "[ab]", ".*"]),
    )
    def arrive(self, instance: str | None, topics: tuple[str, ...], regex: str | None) -> Player:
        self.count += 1
        player = Player(f"p{self.count}", instance, topics, regex)
        self.alive.append(player)
        self.heartbeat(player, True)
        return player

    @rule(target=old_players, instance=st.sampled_from([None, "i", "k"]), topics=st.sampled_from([("a",), ("a", "b")]))
    def arrive_classic(self, instance: str | None, topics: tuple[str, ...]) -> OldPlayer:
        self.count += 1
        player = OldPlayer(f"o{self.count}", instance, topics)
        self.alive.append(player)
        self.old_heartbeat(player)
        return player

    @rule(player=players, delivered=st.booleans())
    def heartbeat(self, player: Player, delivered: bool) -> None:
        """An answer that is lost on the way leaves the client unsure."""
        everything = player.unsure or player.epoch == JOINS
        report = Report(
            G,
            player.member_id,
            player.epoch,
            player.name,
            "/host",
            player.instance,
            None,
            REBALANCE_MS if everything else -1,
            player.topics if everything else None,
            (player.regex or "") if everything else None,
            None,
            NOTHING if player.epoch == JOINS else player.owned,
        )
        player.unsure = True
        ticket = player if delivered else None
        self.carry_out(self.groups.report(report, ticket, self.now_ms, f"{player.name}-{self.count}"))

    @rule(player=players, topics=st.sampled_from([("a",), ("b", "c"), ("a", "b", "c")]))
    def resubscribe(self, player: Player, topics: tuple[str, ...]) -> None:
        player.topics, player.unsure = topics, True
        self.heartbeat(player, True)

    @rule(player=consumes(players), for_now=st.booleans())
    def leave(self, player: Player, for_now: bool) -> None:
        self.alive.remove(player)
        epoch = LEAVES_FOR_NOW if for_now and player.instance is not None else LEAVES
        report = Report(G, player.member_id, epoch, instance_id=player.instance)
        self.carry_out(self.groups.report(report, None, self.now_ms, ""))

    @rule(player=consumes(players))
    def vanish(self, player: Player) -> None:
        self.alive.remove(player)

    @rule(player=consumes(old_players), says=st.booleans())
    def old_ends(self, player: OldPlayer, says: bool) -> None:
        self.alive.remove(player)
        if says:
            leaving = Identity(player.member_id, player.instance)
            self.carry_out(self.groups.leave(G, [leaving], None, self.now_ms))

    @rule(player=old_players)
    def old_heartbeat(self, player: OldPlayer) -> None:
        if player.waiting:
            return
        error = self.groups.heartbeat(G, player.member_id, player.instance, player.epoch, self.now_ms)
        if error == OK:
            return
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            player.out()
        player.owned = NOTHING
        self.count += 1
        protocols = (("range", player.metadata()),)
        command = Join(
            G, player.member_id, player.instance, player.name, "/host", SESSION_MS, REBALANCE_MS, "consumer", protocols
        )
        player.waiting += 1
        self.carry_out(self.groups.join(command, player, self.now_ms, f"{player.name}-{self.count}"))

    @rule(player=old_players)
    def old_sync(self, player: OldPlayer) -> None:
        if player.waiting or player.told is None:
            return
        given = self.led(player.told) if player.told.leader == player.member_id else {}
        command = Sync(G, player.epoch, player.member_id, player.instance, assignments=given)
        player.waiting += 1
        self.carry_out(self.groups.sync(command, player, self.now_ms))

    def led(self, told: Joined) -> dict[str, bytes]:
        """The leader of a classic group: partition n to member n, whatever they subscribe to."""
        given: dict[str, bytes] = {}
        for number, member in enumerate(told.members):
            rows = [
                ConsumerProtocolAssignment.TopicPartition(
                    topic=topic.name, partitions=list(range(number, topic.count, len(told.members)))
                )
                for topic in self.groups.view.topics.values()
            ]
            given[member.member_id] = b"\0\1" + b"".join(
                encode(ConsumerProtocolAssignment(assigned_partitions=rows), 1)
            )
        return given

    # ------------------------------------------------------------------------------------------------ what happens

    @rule(ms=st.sampled_from([1, 1_000, 4_000, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.groups.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.groups.wake_ms)
            for _, decision in self.groups.advance(self.now_ms):
                self.carry_out(decision)
        self.now_ms = end_ms

    @rule(count=st.integers(1, 5))
    def store(self, count: int) -> None:
        for _ in range(min(count, len(self.under_way))):
            facts, answers = self.under_way.popleft()
            for fact in facts:
                self.keep(fact)
            self.answer(answers)

    def keep(self, fact: KeyedRecord) -> None:
        self.groups.apply(fact)
        space, key, value = fact
        if value is None:
            self.stored.pop((space, key), None)
        else:
            self.stored[space, key] = value

    @rule(torn=st.integers(0, 6))
    def crash(self, torn: int) -> None:
        """The broker dies with some facts of a decision stored and others not; nobody was told of any of them."""
        if self.under_way:
            for fact in self.under_way[0][0][:torn]:
                self.keep(fact)
        self.under_way.clear()
        for player in self.alive:
            if isinstance(player, OldPlayer):
                player.waiting = 0
        self.groups = self.loaded()
        for fact in self.groups.orphaned_members():
            self.keep(fact)
        self.look()
        self.groups.resume(self.now_ms)

    @rule()
    def lose_a_write(self) -> None:
        if self.under_way:
            for _, answers in self.under_way:
                for player, _ in answers:
                    if isinstance(player, OldPlayer):
                        player.waiting -= 1
            self.under_way.clear()
            self.carry_out(self.groups.reload(G, self.now_ms))

    @rule()
    def settle(self) -> None:
        """Members do what clients do: without this, chance rarely gets many of them anywhere."""
        for _ in range(4):
            for player in list(self.alive):
                if isinstance(player, OldPlayer):
                    self.old_heartbeat(player)
                    self.store(10**6)
                    self.old_sync(player)
                else:
                    self.heartbeat(player, True)
                self.store(10**6)

    # --------------------------------------------------------------------------------------------------- the store

    def carry_out(self, decision: GroupDecision) -> None:
        answers = list(decision.responses)
        if decision.records or self.under_way:
            self.under_way.append((list(decision.records), answers))
        else:
            self.answer(answers)

    def answer(self, answers: list[tuple[Any, Response]]) -> None:
        for player, answer in answers:
            if player is None:
                continue
            if isinstance(answer, Standing):
                assert answer.error in REPORT_ERRORS, answer
                self.take_standing(player, answer)
                continue
            player.waiting -= 1
            if isinstance(answer, Joined):
                if answer.error in (OK, ErrorCode.MEMBER_ID_REQUIRED):
                    player.member_id = answer.member_id
                if answer.error == OK:
                    player.epoch, player.told = answer.generation, answer
                elif answer.error in OUT:
                    player.out()
            elif isinstance(answer, Synced) and answer.error == OK:
                assignment = read_assignment(answer.assignment)
                assert assignment is not None
                player.owned = partitions_of(assignment.assigned_partitions, self.groups.view)
            elif isinstance(answer, Synced) and answer.error in OUT:
                player.out()

    def take_standing(self, player: Player, answer: Standing) -> None:
        if answer.error in OUT:
            player.out()
        elif answer.error == OK and answer.epoch > 0:
            assert answer.member_id == player.member_id
            player.epoch, player.unsure = answer.epoch, False
            if answer.assigned is not None:
                player.owned = answer.assigned

    def loaded(self) -> Groups:
        rows = [(key, value) for (space, key), value in self.stored.items() if space == SPACE]
        members = [(key, value) for (space, key), value in self.stored.items() if space == MEMBER_SPACE]
        return Groups.load(rows, Offsets(), self.limits, members)

    # ------------------------------------------------------------------------------------------ what always holds

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = getattr(self, "groups", None) and self.groups._live.get(G)
        if not group:
            return
        owners: dict[tuple[bytes, int], Player] = {}
        for player in self.alive:
            member = group.members.get(player.member_id)
            if member is None:
                continue
            if isinstance(group, ClassicGroup):
                current = player.epoch == group.generation
            else:
                current = player.epoch in (group.members[player.member_id].epoch, member.previous_epoch)
            if current:
                for place in parts.each(player.owned):
                    assert place not in owners, f"{place} is owned by {owners[place]} and {player}"
                    owners[place] = player

    @invariant()
    def a_group_agrees_with_itself(self) -> None:
        group = getattr(self, "groups", None) and self.groups._live.get(G)
        if isinstance(group, ConsumerGroup):
            check(group)

    @invariant()
    def replaying_gives_the_live_state(self) -> None:
        if not hasattr(self, "groups"):
            return
        again = self.loaded()
        assert again._stored == self.groups._stored
        assert again._stored_members == self.groups._stored_members
        live, twin = self.groups._live.get(G), again._live.get(G)
        if self.under_way:
            return
        if isinstance(live, ConsumerGroup):
            assert isinstance(twin, ConsumerGroup)
            assert twin.record() == live.record()
            assert {m.member_id: m.record() for m in twin.members.values()} == {
                m.member_id: m.record() for m in live.members.values()
            }
            assert twin.roster.owners == live.roster.owners and twin.roster.static == live.roster.static
            assert twin.topics.named == live.topics.named and twin.topics.regexes == live.topics.regexes
            assert twin.roster.classic == live.roster.classic
        else:
            assert not self.groups._stored_members, "members of no group are stored"

    def teardown(self) -> None:
        """Whoever goes on with its heartbeats comes to own its part; the silent are forgotten."""
        if not hasattr(self, "groups"):
            return
        self.store(10**6)
        # Two that call themselves by the same static name would put each other out for ever.
        last = {player.instance or player.name: player for player in self.alive}
        self.alive = [player for player in self.alive if last[player.instance or player.name] is player]
        speakers = [player for player in self.alive if not isinstance(player, OldPlayer)]
        for _ in range(12):
            self.settle()
            self.time_passes(4_000)
            self.store(10**6)
        group = self.groups._live.get(G)
        if speakers and isinstance(group, ConsumerGroup) and self.limits.consumer.size_max == 100:
            check(group)
            assert group.state is State.STABLE, group.describe_consumers()
            wanted = {
                (topic.topic_id, index)
                for name in group.subscribed()
                if (topic := self.topics.get(name)) is not None
                for index in range(topic.count)
            }
            assert group.roster.owners.keys() == wanted, "everything that is subscribed to has an owner"
        self.alive.clear()
        for _ in range(8):
            self.time_passes(REBALANCE_MS * 2)
            self.store(10**6)
        group = self.groups._live.get(G)
        assert group is None or not group.members, "silent members are gone"


def check(group: ConsumerGroup) -> None:
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        assert parts.disjoint(member.assigned, member.revoking)
        for place in parts.each(member.held):
            assert place not in owners, f"{place} is held by {owners[place]} and {member.member_id}"
            owners[place] = member.member_id
        if group.target_epoch == group.epoch and member.is_reconciled(group.target_epoch):
            assert member.assigned == member.target
        assert member.epoch <= group.target_epoch or group.target_epoch < group.epoch
    assert owners == group.roster.owners
    assert {
        m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
    } == group.roster.static
    if group.target_epoch == group.epoch:
        targets = [place for member in group.members.values() for place in parts.each(member.target)]
        assert len(targets) == len(set(targets)), "the target gives something twice"


TestConsumerGroups = Machine.TestCase
TestConsumerGroups.settings = settings(max_examples=100, stateful_step_count=40)
