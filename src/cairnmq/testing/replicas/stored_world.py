"""Three replicas of one journal on real storage, led by the replication core, under faults, from one seed.

Here storage is what is tested: raw bytes copied in any pieces, cuts by epochs, promotions and demotions, crashes in the
middle of any operation. The store is a value, and messages arrive at once, late or never; `world.py` tests the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from cairnmq.replication.controller import ControllerMemory, decide
from cairnmq.replication.follower import Append, Cut, JournalFollower, Reread, Stop
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import Kept, Proposal, PublishedEnd
from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.testing.oracle import demand
from cairnmq.testing.replicas.stored_clients import StoredClients
from cairnmq.testing.replicas.stored_judge import StoredJudge
from cairnmq.testing.replicas.stored_replica import Life, StoredReplica, Topics
from cairnmq.testing.replicas.stored_store import StoredStore
from cairnmq.testing.sim_disk import SimCrash

BROKERS = (1, 2, 3)
STEPS = 400
LAG_MS = 400
SETTLE_ROUNDS = 400


class StoredWorld:
    """Make it, `run` it; a Violation says what went wrong."""

    slots = 0  # of coordinators

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.now_ms = 1_000
        self.flushes: list[Flush] = random.choice([["commit"], ["commit", "interval"], ["none", "interval"]])
        self.power = random.choice((0, 0.5, 0.9))  # how often a machine that dies loses power
        self.zombies = random.random() < 0.7
        self.refusals = random.choice((0.02, 0.02, 0.15))  # of a disk, now and then
        self.topics = Topics(self.slots)
        self.topics.add(LogConfig(flush=self.flushes[0]))
        segment_bytes = random.choice((250, 900, 4_000))
        self.machines = {broker: StoredReplica(broker, segment_bytes, random) for broker in BROKERS}
        self.lives: dict[int, Life] = {}
        self.memory = ControllerMemory()
        self.store = StoredStore(BROKERS, weak=self.flushes != ["commit"])
        self.judge = StoredJudge()
        self.more: list[tuple[float, Callable[[], None]]] = []  # that another world does, and how often
        self.clients = StoredClients(random, self.lives, self.judge, self.counts)
        for broker in BROKERS:
            self.start(broker)

    def run(self, steps: int = STEPS) -> None:
        """Faults all the time; at the end everything must come to rest."""
        actions: list[tuple[float, Callable[[], None]]] = [
            (20, self.clients.produce),
            (14, self.clients.send),
            (4, self.clients.move_start),
            (4, self.clients.put_keyed),
            (24, self._write),
            (50, self._fetch),
            (12, self._sync),
            (20, lambda: self._with_any(self._look_at)),
            (12, self._control),
            (6, self._propose),
            (5, lambda: self._with_any(Life.checkpoint)),
            (8, lambda: self._with_any(Life.learn_queues)),
            (1, self._add_topic),
            (0.8, self._die),
            (0.8 if self.zombies else 0, self._expire),
            (0.3 * self.power, self._lose_all_power),
            (15, self._restart),
            *self.more,
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            self.now_ms += self.random.choice((1, 5, 20))
            self._play(self.random.choices(actions, weights)[0][1])
        self.settle()

    def _play(self, action: Callable[[], None]) -> None:
        """A step, in the middle of which a machine may stop."""
        if self.random.random() < 0.06:
            disk = self.machines[self.random.choice(BROKERS)].disk
            disk.crash_at = disk.operations + self.random.randint(1, 3)
        elif self.random.random() < self.refusals and (life := self._any()) is not None:
            life.failing = self.random.randint(1, 3)
        try:
            action()
        except SimCrash:
            self.counts["crash"] += 1
            for broker, machine in self.machines.items():
                if machine.disk.stopped:
                    self.end(broker, power=self.random.random() < self.power)
        for machine in self.machines.values():
            machine.disk.crash_at = None
        self._check()

    # -------------------------------------------------------------------------------------------------- the machines

    def start(self, broker: int) -> None:
        """A new process: recovery, then a new life in the store."""
        machine = self.machines[broker]
        if self.random.random() < 0.7:
            machine.next_queue = self.topics.next_queue
        me = self.store.register(broker, clean=False)
        life = self.lives[broker] = Life(machine, self.topics, me, self.store.kept.record)
        self.judge.started(broker, life)
        self._look_at(life)

    def end(self, broker: int, *, power: bool) -> None:
        """The process is gone; with the power, what was not synced is too, or any part of it."""
        life, machine = self.lives.pop(broker, None), self.machines[broker]
        if life is not None:
            machine.synced = life.path.journal.synced
        if power:
            self.judge.lost_power(broker, machine.synced)
            machine.disk = machine.disk.crash()
        else:
            machine.disk = machine.disk.kill()
        if self.random.random() < 0.7:
            self.store.live.pop(broker, None)

    def _die(self) -> None:
        broker = self.random.choice(BROKERS)
        if broker in self.lives:
            self.counts["deaths"] += 1
            self.end(broker, power=self.random.random() < self.power)

    def _lose_all_power(self) -> None:
        self.counts["blackouts"] += 1
        for broker in BROKERS:
            if broker in self.lives:
                self.end(broker, power=True)

    def _restart(self) -> None:
        for broker in BROKERS:
            if broker not in self.lives and self.random.random() < 0.4:
                self.start(broker)

    def _expire(self) -> None:
        """A session ends, and the process does not know."""
        self.store.live.pop(self.random.choice(BROKERS), None)

    # ----------------------------------------------------------------------------------------------------- the store

    def _apply(self, proposal: Proposal) -> bool:
        before, record = self.store.kept.record, proposal.record
        if not self.store.apply(proposal):
            return False
        if record.leader is not None and record.epoch != before.epoch:
            self.counts["elections"] += 1
            if record.recovered == record.epoch:
                self.counts["recoveries"] += 1
                end = self.store.brokers[record.leader.broker].ends[0].end
                self.counts["recovery cuts"] += self.judge.recovered(end)
        return True

    def _control(self) -> None:
        for proposal in decide(self.store.view(), self.memory, self.now_ms):
            self._apply(proposal)

    def _any(self) -> Life | None:
        return self.random.choice(list(self.lives.values())) if self.lives else None

    def _with_any(self, step: Callable[[Life], None]) -> None:
        if (life := self._any()) is not None:
            step(life)

    def _look_at(self, life: Life) -> None:
        """The process reads the store."""
        broker, kept = life.me.broker, self.store.kept
        record = kept.record
        if life.leader is not None and not life.leader.seen(kept):
            self.counts["demotions"] += 1
            life.stop_leading()
            self.judge.check_states(life)
        if self.store.live.get(broker) != life.me.broker_epoch:  # the session ended, the process did not
            if life.leader is not None:
                life.stop_leading()
            life.follower = None
            life.me = self.store.register(broker, clean=True)
        if record.epoch < life.epoch or life.leader is not None:
            return
        life.epoch = record.epoch
        if record.leader == life.me:
            if life.history.last_epoch < record.epoch:
                self._lead(life, kept)
        elif record.leader is not None:
            if life.follower is None or life.follower.record.epoch != record.epoch:
                life.learn()
                synced = life.path.journal.synced
                life.follower = JournalFollower(life.me, record, life.history, synced=synced, known=life.known)
        else:
            life.learn()
            life.follower = None
            end = PublishedEnd(record.epoch, life.history.last_epoch, life.history.end)
            self.store.brokers[broker] = replace(self.store.brokers[broker], ends={0: end})

    def _lead(self, life: Life, kept: Kept) -> None:
        self.counts["promotions"] += 1
        life.learn()
        start = life.promote(kept.record.epoch)
        journal = life.path.journal
        if life.history.last_epoch < kept.record.epoch or journal.end == start < journal.staged_end:
            self.end(life.me.broker, power=False)  # the disk did not take the head
            return
        life.leader = JournalLeader(
            life.me,
            kept,
            life.history,
            start=start,
            synced=life.path.journal.synced,
            replicated_end=life.known.replicated,
            durable_end=life.known.durable,
            now_ms=self.now_ms,
            settings=LeaderSettings(LAG_MS),
        )
        life.advance()

    def _propose(self) -> None:
        for life in self.lives.values():
            leader = life.leader
            if leader is None:
                continue
            proposal = leader.propose(self.store.view(), self.now_ms)
            if proposal is not None and not self._apply(proposal):
                leader.refused()
            if proposal is not None and leader.seen(self.store.kept):
                life.advance()
            if life.path.journal.synced < leader.sync_wanted(self.store.view(), self.now_ms):
                life.begin_sync()

    # ------------------------------------------------------------------------------------------ what brokers go on with

    def _write(self) -> None:
        life = self.clients.leading()
        if life is None:
            return
        life.take()
        if self.random.random() < 0.7:
            life.write_on()

    def _fetch(self) -> None:
        life = self._any()
        if life is not None:
            self._fetch_for(life, self.random.choice((40, 150, 700, 5000)), self.random.random())

    def _fetch_for(self, life: Life, size: int, chance: float) -> None:
        """A follower asks; the response may be lost, or come late."""
        follower = life.follower
        if follower is None or follower.record.leader is None:
            return
        if life.late and chance < 0.1:
            asked, reply, data = life.late.pop()
            self._replied(life, asked, reply, data)
            return
        asked = follower.position(now_ms=self.now_ms)
        other = self.lives.get(follower.record.leader.broker)
        if other is None or other.leader is None:
            return
        reply = other.leader.fetched(asked, self.store.view(), self.now_ms)
        data = b""
        if isinstance(reply, Accepted):
            other.advance()
            data = other.bytes_from(asked.end, size)
        if chance > 0.93:
            life.late.append((asked, reply, data))
        else:
            self._replied(life, asked, reply, data)

    def _replied(self, life: Life, asked: FetchPosition, reply: FetchReply, data: bytes) -> None:
        follower = life.follower
        if follower is None or asked.follower != follower.me:
            return
        step = follower.replied(asked, reply)
        if isinstance(step, Append) and isinstance(reply, Accepted):
            life.append(data, asked, reply)
            if step.sync:
                life.begin_sync()
        elif isinstance(step, Cut):
            self.counts["cuts"] += 1
            self.counts["cuts below"] += step.to < life.path.journal.replicated_end
            if life.cut(step.to):
                self.judge.started(life.me.broker, life)
            self.judge.was_cut(life.me.broker, step.to)
            self.judge.check_states(life)
        elif isinstance(step, Stop):
            demand(False, "broker", life.me.broker, "stops:", step.reason)
        elif isinstance(step, Reread):
            self._look_at(life)

    def _sync(self) -> None:
        life = self._any()
        if life is None:
            return
        if life.syncing is None or self.random.random() < 0.2:
            life.begin_sync()
        if self.random.random() < 0.7:
            life.end_sync()

    def _add_topic(self) -> None:
        if len(self.topics.specs) > 2 and self.random.random() < 0.4:
            self.counts["deletions"] += 1
            del self.topics.specs[self.random.choice(list(self.topics.specs))]
        self.topics.add(LogConfig(flush=self.random.choice(self.flushes)))
        if (life := self.clients.leading()) is not None:
            life.learn_queues()

    # --------------------------------------------------------------------------------------------------- what is true

    def _check(self) -> None:
        for broker, life in self.lives.items():
            self.judge.check_ends(broker, life, self.store.kept)
        chosen = self._any()
        if chosen is not None and self.random.random() < 0.3:
            self.judge.check_states(chosen)

    # ----------------------------------------------------------------------------------------------------- the end

    def settle(self) -> None:
        """No more faults: all replicas must become equal, and have what was promised."""
        for life in self.lives.values():
            life.failing = 0
        for _ in range(SETTLE_ROUNDS):
            self.now_ms += 50
            for broker in BROKERS:
                if broker not in self.lives:
                    self.start(broker)
            for life in list(self.lives.values()):
                life.learn_queues()
                self._look_at(life)
                if life.leader is not None:
                    life.write_on()
                life.end_sync()
                self._fetch_for(life, 5000, 0.5)
                life.begin_sync()
                life.end_sync()
            self._control()
            self._propose()
            self._check()
            if self._is_at_rest():
                break
        else:
            demand(False, "nothing comes to rest:", self.store.kept, self.store.live)
        self.judge.check_rest(list(self.lives.values()), self.store.kept.record.epoch)

    def _is_at_rest(self) -> bool:
        record = self.store.kept.record
        led_by = self.lives.get(record.leader.broker) if record.leader is not None else None
        leader = led_by.leader if led_by is not None else None
        if leader is None or len(self.lives) < len(BROKERS) or len(record.isr) < len(BROKERS) or leader.in_flight:
            return False
        if not leader.ready:
            return False  # nobody knows yet that all of earlier epochs counts: coordinators wait for it
        ends = {life.path.journal.end for life in self.lives.values()}
        journals = [life.path.journal for life in self.lives.values()]
        return len(ends) == 1 and all(j.durable_end == j.replicated_end == j.end for j in journals)
