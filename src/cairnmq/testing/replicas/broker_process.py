"""One life of a broker's process: plays the asyncio shell around the replication core."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from cairnmq.replication.controller import ControllerMemory, decide
from cairnmq.replication.follower import Append, Cut, Install, JournalFollower, Reread, Stop
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.lease import Lease
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply, Room
from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd
from cairnmq.testing.replicas.judge import Acks, Broken, Judge
from cairnmq.testing.replicas.machine import Machine, ModelEntry, ModelJournal
from cairnmq.testing.replicas.process import Process
from cairnmq.testing.replicas.schedule import Network, Schedule
from cairnmq.testing.replicas.sim_store import SESSION_MS, Done, InDoubt, Outcome, SimStore

LAG_MAX_MS = 1_500
FETCH_BATCH = 4
FETCH_PATIENCE_MS = 1_000


class Waiting(Struct):
    """A producer that waits for its response."""

    payload: int
    end: int
    acks: Acks
    told: Callable[[bool], None]


class Hosted:
    """A journal that this process hosts, in whatever role."""

    def __init__(self, number: int, disk: ModelJournal) -> None:
        self.number = number
        self.disk = disk
        self.history = disk.history()
        self.known = disk.known
        self.epoch = 0  # the latest that was seen
        self.leader: JournalLeader | None = None
        self.follower: JournalFollower | None = None
        self.lease: Lease | None = None
        self.waiting: list[Waiting] = []
        self.asked_ms = -FETCH_PATIENCE_MS
        self.asked: FetchPosition | None = None  # the last request
        self.publishing = -1  # the epoch for which an end is on its way
        self.syncing = False
        self.sync_covers = 0  # by the sync under way; a cut takes from it

    def append(self, entry: ModelEntry) -> None:
        """To the disk's page cache, and to what is known of it."""
        self.disk.append(entry)
        self.history.begin(entry.epoch, entry.start)
        self.history.extend(entry.end)

    def checkpoint(self) -> None:
        """Stores the ends that are known, as far as the journal itself is synced."""
        self.learn()
        if self.known.replicated <= self.disk.synced:
            self.disk.known = self.known

    def learn(self) -> None:
        """What the role knows."""
        if self.leader is not None:
            self.known = self.known.learned(self.leader.replicated_end, self.leader.durable_end, self.leader.epoch)
        elif self.follower is not None:
            self.known = self.follower.known


class Shared(Struct):
    """What all processes of a world share."""

    schedule: Schedule
    network: Network
    store: SimStore
    judge: Judge
    processes: dict[int, BrokerProcess]
    min_isr: int
    prompt: bool  # leaders drop members whose session has ended at once


class RoomyProcess(Process):
    """What a process with room for everything does, and other worlds choose; `narrow_process.py` has one with too
    little."""

    id: int
    shared: Shared

    def settings(self) -> LeaderSettings:
        """Of a leader."""
        return LeaderSettings(LAG_MAX_MS, prompt=self.shared.prompt)

    def room(self, hosted: Hosted) -> Room:
        """What this replica has left."""
        return Room(hosted.disk.checkpointed)

    def entries_for(self, hosted: Hosted, asked: FetchPosition) -> list[ModelEntry]:
        """What a follower gets."""
        return hosted.disk.after(asked.end, FETCH_BATCH)

    def take(self, hosted: Hosted, entries: list[ModelEntry]) -> None:
        """A follower appends."""
        for entry in entries:
            hosted.append(entry)

    def stays_out(self, hosted: Hosted, reply: FetchReply, reason: str) -> None:
        """This replica cannot go on by itself."""
        raise Broken(f"broker {self.id}, journal {hosted.number}: {reason}")

    def may_answer_alone(self, hosted: Hosted, leader: JournalLeader) -> bool:
        """acks=1: nobody else can be leading now, or the harm is bounded by the lease (R18)."""
        alone = leader.members() == {leader.me}
        return hosted.lease is not None and (alone or hosted.lease.holds(self.now_ms()))


class BrokerProcess(RoomyProcess):
    """The shell of a broker: registers, watches the store, and takes the roles that the records say."""

    def __init__(self, machine: Machine, shared: Shared) -> None:
        super().__init__(shared.schedule)
        self.machine = machine
        self.shared = shared
        self.id = machine.broker
        self.me: Member | None = None
        self.view: ClusterView | None = None
        self.controller: Member | None = None
        self.memory = ControllerMemory()
        self.deciding = False
        self.registering = False
        self.renewed_ms = 0  # when the store was asked that said last that this life goes on
        self.hosted = {number: Hosted(number, disk) for number, disk in machine.journals.items()}

    def start(self) -> None:
        """Registers, and begins to look after everything now and then."""
        self.register(self.machine.clean)
        self.later(self.shared.schedule.delay(), self.tick)

    def register(self, marker: int) -> None:
        """`marker`: the life whose every byte this one has."""
        if self.registering:
            return
        self.registering = True
        self.me, self.renewed_ms = None, self.now_ms()
        store, given = self.shared.store, list[Member]()
        for hosted in self.hosted.values():
            self.stop_leading(hosted)
            hosted.follower = None
        self.call(
            lambda: store.register(self.id, marker, frozenset(self.machine.damaged), given),
            lambda outcome: self.registered(outcome, marker, given),
        )

    def registered(self, outcome: Outcome, marker: int, given: list[Member]) -> None:
        """The marker is consumed before anything is appended."""
        if isinstance(outcome, InDoubt):
            return  # the outcome follows
        self.registering = False
        if not isinstance(outcome, Done):
            self.register(marker)
            return
        self.machine.clean = 0
        self.me = given[-1]
        self.shared.store.watchers[self.id] = self.watched
        if self.id not in self.shared.store.cut_off:
            self.shared.store.reachable(self.id)

    def call(self, change: Callable[[], bool], tell: Callable[[Outcome], None]) -> None:
        """A transaction of the store."""
        self.shared.store.call(self.id, change, lambda outcome: self.guarded(lambda: tell(outcome))())

    def tick(self) -> None:
        """Everything that is looked at now and then."""
        self.later(self.shared.schedule.random.randint(40, 120), self.tick)
        self.renew()
        if self.me is None or self.view is None:
            return
        self.control()
        for hosted in self.hosted.values():
            self.look_after(hosted, self.view)

    def renew(self) -> None:
        """The session, if the store is reached. A process whose session has ended registers again (R10)."""
        store, me = self.shared.store, self.me
        if me is None or self.id in store.cut_off:
            return
        if not store.renew(me):
            self.register(me.broker_epoch)
            return
        for hosted in self.hosted.values():
            if hosted.lease is not None:
                hosted.lease.confirm(self.now_ms())

    # ----------------------------------------------------------------------------------------------- the store says

    def watched(self, view: ClusterView, controller: Member | None) -> None:
        """A snapshot of the store arrived."""
        self.guarded(lambda: self.see(view, controller))()

    def see(self, view: ClusterView, controller: Member | None) -> None:
        """Roles follow from the records."""
        if self.view is not None and view.revision < self.view.revision:
            return
        self.view, self.controller = view, controller
        for hosted in self.hosted.values():
            self.take_role(hosted, view.journals[hosted.number])

    def take_role(self, hosted: Hosted, kept: Kept) -> None:
        """Lead, follow, or stand still."""
        record = kept.record
        if hosted.leader is not None and not hosted.leader.seen(kept):
            self.stop_leading(hosted)
        if self.me is None or record.epoch < hosted.epoch or hosted.leader is not None:
            return
        hosted.epoch = record.epoch
        if record.leader == self.me:
            if hosted.history.last_epoch < record.epoch:
                self.lead(hosted, kept, self.me)
        elif record.leader is not None:
            if hosted.follower is None or hosted.follower.record.epoch != record.epoch:
                hosted.follower = JournalFollower(
                    self.me, record, hosted.history, synced=hosted.disk.synced, known=hosted.known
                )
                hosted.asked_ms = -FETCH_PATIENCE_MS
        else:
            hosted.follower = None
            self.publish(hosted, record, self.me)
        if record.member(self.id) == self.me and hosted.number in self.machine.damaged:
            self.machine.damaged.discard(hosted.number)
            self.call(partial(self.shared.store.repaired, self.me, hosted.number), lambda _: None)

    def lead(self, hosted: Hosted, kept: Kept, me: Member) -> None:
        """The head of the epoch's first segment is written at once."""
        epoch, start = kept.record.epoch, hosted.disk.end
        self.shared.judge.led_by(hosted.number, epoch, self)
        hosted.follower = None
        hosted.append(ModelEntry(epoch, start, start + 1, 0))
        hosted.lease = Lease(SESSION_MS, now_ms=self.renewed_ms)
        hosted.leader = JournalLeader(
            me,
            kept,
            hosted.history,
            start=start,
            synced=hosted.disk.synced,
            replicated_end=hosted.known.replicated,
            durable_end=hosted.known.durable,
            now_ms=self.now_ms(),
            first=hosted.disk.first,
            settings=self.settings(),
        )
        self.moved(hosted)

    def stop_leading(self, hosted: Hosted) -> None:
        """Producers that wait hear that the outcome is unknown."""
        if hosted.leader is not None:
            hosted.leader = None
            waiting, hosted.waiting = hosted.waiting, []
            for one in waiting:
                one.told(False)

    def publish(self, hosted: Hosted, record: JournalRecord, me: Member) -> None:
        """The journal has no leader: tell how far this replica reaches (R21)."""
        assert self.view is not None
        registered = self.view.brokers.get(self.id)
        if registered is None or registered.broker_epoch != me.broker_epoch or record.member(self.id) is None:
            return
        told = registered.ends.get(hosted.number)
        if hosted.publishing == record.epoch or (told is not None and told.of_epoch == record.epoch):
            return
        hosted.publishing = record.epoch
        end = PublishedEnd(record.epoch, hosted.history.last_epoch, hosted.disk.end)

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, InDoubt):
                hosted.publishing = -1

        self.call(partial(self.shared.store.publish, me, hosted.number, end), done)

    # -------------------------------------------------------------------------------------------------- controller

    def control(self) -> None:
        """One broker decides for all."""
        store, me = self.shared.store, self.me
        if me is None or self.view is None or self.deciding:
            return

        def done(outcome: Outcome) -> None:
            self.deciding = isinstance(outcome, InDoubt)

        if self.controller is None:
            self.deciding = True
            self.call(partial(store.elect_controller, me), done)
        elif self.controller == me:
            proposals = decide(self.view, self.memory, self.shared.schedule.now_ms)
            if proposals:
                self.deciding = True
                self.call(partial(store.propose, proposals, me), done)

    # ---------------------------------------------------------------------------------------------------- journals

    def look_after(self, hosted: Hosted, view: ClusterView) -> None:
        """A leader's proposals, a follower's requests, and syncs."""
        schedule = self.shared.schedule
        if hosted.leader is not None:
            proposal = hosted.leader.propose(view, self.now_ms())
            if proposal is not None:
                self.propose(hosted, hosted.leader, proposal)
            if hosted.disk.synced < hosted.leader.sync_wanted(view, self.now_ms()):
                self.sync(hosted)
        elif hosted.follower is not None:
            if schedule.now_ms - hosted.asked_ms >= FETCH_PATIENCE_MS:
                self.ask(hosted, hosted.follower)
        elif self.me is not None:
            self.take_role(hosted, view.journals[hosted.number])
        if schedule.random.random() < 0.05:
            self.sync(hosted)
        if schedule.random.random() < 0.05:
            hosted.checkpoint()

    def propose(self, hosted: Hosted, leader: JournalLeader, proposal: Proposal) -> None:
        """A change by the leader; it counts both sets of members until the outcome is known."""

        self.call(lambda: self.shared.store.propose([proposal]), partial(self.proposed, hosted, leader))

    def proposed(self, hosted: Hosted, leader: JournalLeader, outcome: Outcome) -> None:
        """Made or refused: the record is read again. In doubt: both sets of members go on counting."""
        if hosted.leader is not leader or isinstance(outcome, InDoubt):
            return
        if not isinstance(outcome, Done):
            leader.refused()
        self.see(self.shared.store.view(), self.shared.store.controller)
        self.moved(hosted)

    def sync(self, hosted: Hosted) -> None:
        """Takes a while, and covers what was written when it began."""
        if hosted.syncing:
            return
        hosted.syncing = True
        hosted.sync_covers = hosted.disk.end

        def done() -> None:
            hosted.syncing = False
            end = hosted.sync_covers
            if hosted.disk.synced >= end:
                return
            hosted.disk.synced = end
            if hosted.leader is not None:
                hosted.leader.synced_to(end)
                self.moved(hosted)
            elif hosted.follower is not None:
                hosted.follower.synced_to(end)
                self.ask(hosted, hosted.follower)

        self.later(self.shared.schedule.random.choice([5, 20, 60, 250]), done)

    def moved(self, hosted: Hosted) -> None:
        """An end of the leader moved: producers whose line is reached hear of it."""
        leader, judge = hosted.leader, self.shared.judge
        if leader is None:
            return
        hosted.learn()
        judge.saw_ends(hosted.number, hosted.disk, leader.replicated_end, leader.durable_end)
        left = []
        for one in hosted.waiting:
            end = leader.durable_end if one.acks is Acks.COMMIT else leader.replicated_end
            if end < one.end or leader.in_sync() < self.shared.min_isr:
                left.append(one)
                continue
            self.shared.judge.told(hosted.number, one.payload, one.end, one.acks, leader.members())
            one.told(True)
        hosted.waiting = left

    # --------------------------------------------------------------------------------------------- produce and fetch

    def produce(self, journal: int, payload: int, acks: Acks, told: Callable[[bool], None]) -> None:
        """A producer's record."""
        hosted = self.hosted[journal]
        leader = hosted.leader
        if leader is None or (acks is not Acks.ONE and leader.in_sync() < self.shared.min_isr):
            told(False)
            return
        if acks is Acks.INTERVAL and not leader.record.weak:
            proposal = leader.admit_weak()
            if proposal is not None:
                self.propose(hosted, leader, proposal)
            told(False)
            return
        start = hosted.disk.end
        hosted.append(ModelEntry(leader.epoch, start, start + self.shared.schedule.random.randint(1, 9), payload))
        one = Waiting(payload, hosted.disk.end, acks, told)
        leader.written()
        if acks is Acks.ONE:
            if self.may_answer_alone(hosted, leader):
                self.shared.judge.told(hosted.number, payload, one.end, acks, [leader.me])
                told(True)
            else:
                told(False)
        else:
            hosted.waiting.append(one)
            if acks is Acks.COMMIT:
                leader.durable_wanted = one.end
                self.sync(hosted)
        self.moved(hosted)

    def ask(self, hosted: Hosted, follower: JournalFollower) -> None:
        """The next request to the leader."""
        hosted.asked_ms = self.shared.schedule.now_ms
        asked, leader = follower.position(self.room(hosted)), follower.record.leader
        assert leader is not None
        hosted.asked = asked

        def arrive() -> None:
            process = self.shared.processes.get(leader.broker)
            if process is not None:
                process.guarded(lambda: process.asked(hosted.number, asked, self))()

        self.shared.network.send(self.id, leader.broker, arrive)

    def asked(self, journal: int, asked: FetchPosition, follower: BrokerProcess) -> None:
        """A follower's request: what it may have, and the bytes after its end."""
        hosted = self.hosted[journal]
        leader = hosted.leader
        if leader is None or self.view is None:
            return
        reply = leader.fetched(asked, self.view, self.now_ms())
        entries = self.entries_for(hosted, asked) if isinstance(reply, Accepted) else []
        if isinstance(reply, Accepted):
            if hosted.lease is not None and asked.echo_ms and leader.record.member(asked.follower.broker):
                hosted.lease.confirm(asked.echo_ms)
            self.moved(hosted)

        def arrive() -> None:
            follower.guarded(lambda: follower.replied(journal, asked, reply, entries))()

        wait_ms = 0 if entries else self.shared.schedule.random.randint(0, 150)
        self.shared.schedule.after(wait_ms, lambda: self.shared.network.send(self.id, follower.id, arrive))

    def replied(self, journal: int, asked: FetchPosition, reply: FetchReply, entries: list[ModelEntry]) -> None:
        """The leader's reply, with bytes."""
        hosted = self.hosted[journal]
        follower = hosted.follower
        if follower is None or asked.follower != follower.me:
            return
        step = follower.replied(asked, reply)
        if isinstance(step, Append) and isinstance(reply, Accepted):
            self.take(hosted, entries)
            follower.appended(reply)
            hosted.disk.keep_from = reply.keep_from
            hosted.learn()
            if step.sync:
                self.sync(hosted)
        elif isinstance(step, Cut):
            self.cut(hosted, follower, step.to)
        elif isinstance(step, Install):
            self.stays_out(hosted, reply, f"its position is gone on the leader, whose journal begins at {step.first}")
        elif isinstance(step, Stop):
            self.stays_out(hosted, reply, step.reason)
        elif isinstance(step, Reread) and self.id not in self.shared.store.cut_off:
            self.see(self.shared.store.view(), self.shared.store.controller)
        if hosted.follower is follower and hosted.asked is asked and not isinstance(step, Reread):
            self.ask(hosted, follower)

    def cut(self, hosted: Hosted, follower: JournalFollower, to: int) -> None:
        """A sync under way says nothing about what is appended in the place of what was cut."""
        hosted.disk.cut(to)
        hosted.sync_covers = min(hosted.sync_covers, to)
        follower.was_cut(to)
        hosted.known = follower.known

    def stop_cleanly(self) -> None:
        """Everything is synced, and the marker says which life it was."""
        for hosted in self.hosted.values():
            self.stop_leading(hosted)
            hosted.disk.synced = hosted.disk.end
            hosted.checkpoint()
        if self.me is not None:
            self.machine.clean = self.me.broker_epoch
            self.shared.store.end_session(self.me)
        self.alive = False
