"""Groups and committed offsets on replicas with real storage: facts in slots of a journal whose leader changes.

A commit that was acknowledged is what the next coordinator begins with, or a later one is; and so is a generation, or
epoch, that a member was told. Members are those of the simulator of one machine, whose topics never change here.
"""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.groups.offset_messages import OffsetCommit, OffsetErrors, Position
from cairnmq.groups.offsets import OffsetKey
from cairnmq.groups.partitions import stored as in_order
from cairnmq.testing.fake_topics import FakeTopics
from cairnmq.testing.oracle import demand
from cairnmq.testing.replicas.group_desk import GroupDesk
from cairnmq.testing.replicas.stored_replica import Life
from cairnmq.testing.replicas.stored_world import BROKERS, StoredWorld
from cairnmq.testing.sim_ledger import Ledger
from cairnmq.testing.sim_members import Member, new_member
from cairnmq.types import Slots

STEPS = 1_200
GROUPS = ("g", "h")
MEMBERS_MAX = 4
SOURCE = b"source".ljust(16)


def everywhere(group: str) -> bool:
    """All groups are looked at: there is one journal."""
    return True


class GroupWorld(StoredWorld):
    """As its base, with coordinators on whoever leads."""

    slots = 2

    def __init__(self, seed: int) -> None:
        self.desks: dict[int, GroupDesk] = {}
        super().__init__(seed)
        self.places = Slots(1, self.slots, (0,))
        self.ledger = Ledger()  # what clients were told, by whatever coordinator
        self.members: list[Member] = []
        self.later: list[Callable[[], None]] = []
        self.serial = 0
        topics = FakeTopics()
        topics.put("a", 2)
        topics.put("b", 1)
        self.view = topics.view
        self.more = [(25, self._load), (30, self._member_acts), (30, self._commit), (8, self._fetch_offsets)]
        self.more += [(20, self._catch_up), (15, self._propose), (15, self._control)]
        self.more += [(2, self._die), (3 if self.zombies else 0, self._expire), (2 * self.power, self._lose_all_power)]
        self.more.append((30, lambda: self._with_any(self._look_at)))

    def run(self, steps: int = STEPS) -> None:
        """Groups come and go, with their coordinators."""
        super().run(steps)

    # ------------------------------------------------------------------------------------------------ coordinators

    def end(self, broker: int, *, power: bool) -> None:
        self._close(broker)
        super().end(broker, power=power)

    def _close(self, broker: int) -> None:
        desk = self.desks.pop(broker, None)
        if desk is not None:
            desk.close()

    def _load(self) -> None:
        """R24: not before nothing of it can be taken back."""
        for broker, life in self.lives.items():
            leader = life.leader
            if leader is not None and broker not in self.desks and leader.durable_end > leader.start:
                life.learn_queues()  # slots among them
                self._open(broker, life)

    def _open(self, broker: int, life: Life) -> None:
        ledger = Ledger()
        ledger.tried, ledger.kept, ledger._told = self.ledger.tried, self.ledger.kept, self.ledger._told
        desk = self.desks[broker] = GroupDesk(life, self.places, self.view, ledger, self.later, self.now_ms)
        life.on_lost = lambda: self._close(broker)
        self.counts["loads"] += 1
        if self._leads(desk):
            self._check_desk(desk, seen=False)

    def _leads(self, desk: GroupDesk) -> bool:
        """Whether the store says so too. Another one may go on for as long as its lease lasts."""
        record = self.store.kept.record
        return (record.leader, record.epoch) == (desk.leader.me, desk.leader.epoch)

    def _desk(self) -> GroupDesk | None:
        while self.later:
            self.later.pop(0)()
        return self.random.choice(list(self.desks.values())) if self.desks else None

    def _check_desk(self, desk: GroupDesk, *, seen: bool) -> None:
        desk.ledger.check_offsets(desk.groups.offsets, everywhere, seen=seen)
        desk.ledger.check_groups(desk.groups._stored, everywhere)

    # ----------------------------------------------------------------------------------------------------- clients

    def _member_acts(self) -> None:
        desk = self._desk()
        if desk is None or not self._leads(desk):
            return
        if len(self.members) < MEMBERS_MAX and self.random.random() < 0.3 or not self.members:
            self.members.append(new_member(self.random, self.serial, GROUPS, ("a", "b")))
            self.serial += 1
        member = self.random.choice(self.members)
        if self.random.random() < 0.06:
            self.members.remove(member)
            desk.group_writes.submit(member.group, member.leave(desk.groups, self.now_ms))
            return
        decision = member.act(desk.groups, self.now_ms, desk.ledger)
        if decision is not None:
            self.counts["group decisions"] += bool(decision.records)
            desk.group_writes.submit(member.group, decision)

    def _commit(self) -> None:
        """Whatever a member owns, or of a group without members, further than anybody has committed before."""
        desk = self._desk()
        member = self.random.choice(self.members) if self.members and self.random.random() < 0.6 else None
        if desk is None:
            return
        self.serial += 1
        offset = self.serial
        if member is None:
            group, places = "alone", [(SOURCE, 0)]
            command = OffsetCommit(group, "", None, -1, [Position(SOURCE, 0, offset)])
        else:
            group = member.group
            places = [(topic, index) for topic, indexes in in_order(member.owned) for index in indexes]
            positions = [Position(topic_id, index, offset) for topic_id, index in places]
            command = OffsetCommit(group, member.member_id, member.instance, member.number, positions)
        if not places or desk.groups.commits.error(command, self.now_ms):
            return
        keys = [OffsetKey(group, topic_id, index) for topic_id, index in places]
        for key in keys:
            self.ledger.tried.setdefault(key, []).append(offset)

        def stored(told: OffsetErrors | None) -> None:
            if told is not None:
                self.counts["commits"] += 1
                for key in keys:
                    self.ledger.acknowledged(key, offset)

        desk.offset_writes.submit(group, desk.groups.commits.commit(command, stored, self.now_ms))

    def _fetch_offsets(self) -> None:
        desk = self._desk()
        if desk is not None and self._leads(desk):
            self._check_desk(desk, seen=True)

    def _catch_up(self) -> None:
        """Without this, chance rarely makes anything durable everywhere."""
        for life in list(self.lives.values()):
            if life.leader is not None:
                life.write_on()
            for _ in range(2):
                life.begin_sync()
                life.end_sync()
                self._fetch_for(life, 5000, 0.5)

    # ----------------------------------------------------------------------------------------------------- the end

    def settle(self) -> None:
        """Then a coordinator begins anew, with all that was acknowledged."""
        super().settle()
        for broker in BROKERS:
            self._close(broker)
        self._load()
        demand(len(self.desks) == 1, "no coordinator at rest:", self.store.kept)
        (desk,) = self.desks.values()
        self._check_desk(desk, seen=True)
