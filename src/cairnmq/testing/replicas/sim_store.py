"""The metadata store of the simulation: linearizable, with sessions that expire by its own clock.

A broker's calls take time. While it is cut off from the store, a call may still be made and its response be lost: then
the broker hears `InDoubt`, and what became of it only when it is connected again (R20). Views are snapshots that
arrive late and may skip revisions (R22).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd
from cairnmq.testing.replicas.schedule import Schedule

SESSION_MS = 2_000


class Done(Struct, frozen=True):
    """The transaction was made."""


class Refused(Struct, frozen=True):
    """It certainly was not made, and will not be."""


class InDoubt(Struct, frozen=True):
    """Nobody knows. `Done` or `Refused` follows when the store can be asked."""


Outcome = Done | Refused | InDoubt
Tell = Callable[[Outcome], None]


class _Session(Struct):
    member: Member
    heard_ms: int


class SimStore:
    """Keys as fields; every change raises the revision and is told to who watches."""

    def __init__(self, schedule: Schedule, journals: Sequence[JournalRecord]) -> None:
        self.schedule = schedule
        self.revision = 1
        self.last_epoch = 0
        self.journals = {record.journal: Kept(record, 1) for record in journals}
        self.brokers: dict[int, BrokerRecord] = {}
        self.sessions: dict[int, _Session] = {}
        self.heard_ms: dict[Member, int] = {}  # when each life was last told that it goes on
        self.controller: Member | None = None
        self.cut_off: set[int] = set()  # brokers that cannot reach the store
        self.watchers: dict[int, Callable[[ClusterView, Member | None], None]] = {}
        self.elections = 0
        self.on_isr_change: Callable[[JournalRecord, JournalRecord], None] = lambda before, after: None

    # -------------------------------------------------------------------------------------------------- as it is

    def view(self) -> ClusterView:
        """Everything as of now."""
        live = {broker: session.member.broker_epoch for broker, session in self.sessions.items()}
        return ClusterView(self.revision, self.last_epoch, dict(self.journals), dict(self.brokers), live)

    def _changed(self) -> None:
        self.revision += 1
        for broker in list(self.watchers):
            self._notify(broker)

    def _notify(self, broker: int) -> None:
        def arrive() -> None:
            watcher = self.watchers.get(broker)
            if watcher is not None and broker not in self.cut_off:
                watcher(self.view(), self.controller)

        self.schedule.after(self.schedule.delay(rarely_ms=1_500), arrive)

    def expire(self) -> None:
        """Sessions that were not heard of end, with what they registered."""
        now_ms = self.schedule.now_ms
        for session in list(self.sessions.values()):
            if now_ms - session.heard_ms > SESSION_MS:
                self.end_session(session.member)

    def end_session(self, member: Member) -> None:
        """A session that was closed, or not renewed."""
        session = self.sessions.get(member.broker)
        if session is not None and session.member == member:
            del self.sessions[member.broker]
            if self.controller == member:
                self.controller = None
            self._changed()

    def reachable(self, broker: int) -> None:
        """The broker is connected again: it looks at everything anew."""
        self.cut_off.discard(broker)
        self._notify(broker)

    # ------------------------------------------------------------------------------------------ calls of brokers

    def call(self, broker: int, change: Callable[[], bool], tell: Tell) -> None:
        """One transaction. `change` is made at the store, all or nothing."""
        schedule = self.schedule

        def come_back(made: bool) -> None:
            if broker in self.cut_off:
                tell(InDoubt())
                schedule.after(50, lambda: ask(made))
            else:
                tell(Done() if made else Refused())

        def ask(made: bool) -> None:
            if broker in self.cut_off:
                schedule.after(50, lambda: ask(made))
            else:
                tell(Done() if made else Refused())

        def arrive() -> None:
            reached = broker not in self.cut_off
            made = reached and change()
            schedule.after(schedule.delay(10, rarely_ms=800), lambda: come_back(made))

        schedule.after(schedule.delay(10, rarely_ms=800), arrive)

    def renew(self, member: Member) -> bool:
        """The session goes on; False if it has ended. Renewals change no revision."""
        session = self.sessions.get(member.broker)
        if session is None or session.member != member:
            return False
        session.heard_ms = self.heard_ms[member] = self.schedule.now_ms
        return True

    def register(self, broker: int, marker: int, damaged: frozenset[int], given: list[Member]) -> bool:
        """A process starts, or goes on after its session ended. `marker`: the life whose every byte this one has."""
        known = self.brokers.get(broker)
        self.last_epoch += 1  # one counter for all epochs
        member = Member(broker, self.last_epoch)
        previous = known.broker_epoch if known is not None else 0
        self.brokers[broker] = BrokerRecord(
            broker, member.broker_epoch, previous, clean=marker == previous != 0, damaged=damaged
        )
        self.sessions[broker] = _Session(member, self.schedule.now_ms)
        self.heard_ms[member] = self.schedule.now_ms
        if self.controller is not None and self.controller.broker == broker:
            self.controller = None
        given.append(member)
        self._changed()
        return True

    def publish(self, member: Member, journal: int, end: PublishedEnd) -> bool:
        """How far a journal without a leader reaches on this broker."""
        return self._update(member, lambda known: replace(known, ends={**known.ends, journal: end}))

    def repaired(self, member: Member, journal: int) -> bool:
        """The journal lacks nothing any more."""
        return self._update(member, lambda known: replace(known, damaged=known.damaged - {journal}))

    def _update(self, member: Member, change: Callable[[BrokerRecord], BrokerRecord]) -> bool:
        known = self.brokers.get(member.broker)
        if known is None or known.broker_epoch != member.broker_epoch:
            return False
        self.brokers[member.broker] = change(known)
        self._changed()
        return True

    def elect_controller(self, member: Member) -> bool:
        """Become the controller if there is none."""
        session = self.sessions.get(member.broker)
        if self.controller is not None or session is None or session.member != member:
            return False
        self.controller = member
        self._changed()
        return True

    def propose(self, proposals: Sequence[Proposal], by_controller: Member | None = None) -> bool:
        """Changes of journals' records in one transaction, with all of their conditions."""
        if by_controller is not None and self.controller != by_controller:
            return False
        if not all(map(self._may_be_made, proposals)):
            return False
        for proposal in proposals:
            if proposal.new_epoch:
                self.last_epoch = proposal.new_epoch
                self.elections += 1
            before = self.journals[proposal.record.journal].record
            self.journals[proposal.record.journal] = Kept(proposal.record, self.revision + 1)
            if by_controller is None:
                self.on_isr_change(before, proposal.record)
        self._changed()
        return True

    def _may_be_made(self, proposal: Proposal) -> bool:
        if self.journals[proposal.record.journal].revision != proposal.expect:
            return False
        if proposal.new_epoch and proposal.new_epoch != self.last_epoch + 1:
            return False
        known = (self.brokers.get(member.broker) for member in proposal.registered)
        epochs = [one.broker_epoch if one is not None else 0 for one in known]
        return epochs == [member.broker_epoch for member in proposal.registered]
