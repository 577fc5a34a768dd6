"""A broker's process whose renewals take time, on a machine that may be suspended: what acks=1 relies on (R18)."""

from __future__ import annotations

from functools import partial

from cairnmq.replication.follower import JournalFollower
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.records import Member
from cairnmq.testing.replicas.broker_process import BrokerProcess, Hosted, Shared
from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.machine import Machine
from cairnmq.testing.replicas.sim_store import SESSION_MS

ALONE_MAX_MS = SESSION_MS * 2 // 3  # then nobody has been elected yet because a session ended


class Contacts:
    """When followers last asked, by journal and epoch: until then they knew of no later leader."""

    def __init__(self) -> None:
        self.asked_ms: dict[tuple[int, int], int] = {}


class LeaseProcess(BrokerProcess):
    """Says that something is wrong when it answers alone although nobody has heard of it for too long."""

    def __init__(self, machine: Machine, shared: Shared, contacts: Contacts) -> None:
        super().__init__(machine, shared)
        self.contacts = contacts
        self._suspended_since_ms = -1
        self._suspended_ms = 0  # for how long in all

    def steady_ms(self) -> int:
        """By a clock that stands still while the machine is suspended, as CLOCK_MONOTONIC does."""
        return self.shared.schedule.now_ms - self._suspended_ms

    def suspend(self) -> None:
        """The whole machine: what arrives meanwhile waits."""
        self.paused, self._suspended_since_ms = True, self.shared.schedule.now_ms

    def resume(self) -> None:
        if self._suspended_since_ms >= 0:
            self._suspended_ms += self.shared.schedule.now_ms - self._suspended_since_ms
            self._suspended_since_ms = -1
        super().resume()

    def renew(self) -> None:
        """The request takes time, and so does the response."""
        store, schedule, me = self.shared.store, self.shared.schedule, self.me
        if me is None or self.id in store.cut_off:
            return
        sent_ms = self.now_ms()

        def arrive() -> None:
            if self.id not in store.cut_off:
                respond = partial(self.renewed, me, sent_ms, store.renew(me))
                schedule.after(schedule.delay(10, rarely_ms=2_500), self.guarded(respond))

        schedule.after(schedule.delay(10, rarely_ms=800), arrive)

    def renewed(self, me: Member, sent_ms: int, is_alive: bool) -> None:
        """What the store said of the life that asked at this time."""
        if self.me != me:
            return
        if not is_alive:
            self.register(me.broker_epoch)
            return
        self.renewed_ms = max(self.renewed_ms, sent_ms)
        for hosted in self.hosted.values():
            if hosted.lease is not None:
                hosted.lease.confirm(sent_ms)

    def ask(self, hosted: Hosted, follower: JournalFollower) -> None:
        self.contacts.asked_ms[hosted.number, follower.record.epoch] = self.shared.schedule.now_ms
        super().ask(hosted, follower)

    def may_answer_alone(self, hosted: Hosted, leader: JournalLeader) -> bool:
        may = super().may_answer_alone(hosted, leader)
        if may and leader.members() != {leader.me}:
            by_store = self.shared.store.heard_ms[leader.me]
            by_followers = self.contacts.asked_ms.get((hosted.number, leader.epoch), 0)
            silent_ms = self.shared.schedule.now_ms - max(by_store, by_followers)
            if silent_ms >= ALONE_MAX_MS:
                raise Broken(f"{leader.me} answers alone, and was in touch with nobody for {silent_ms} ms")
        return may
