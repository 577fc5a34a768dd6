"""A cluster of simulated machines under faults, from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct

from cairnmq.replication.placement import BrokerPlace, replica_sets
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.testing.replicas.broker_process import BrokerProcess, Shared
from cairnmq.testing.replicas.judge import Acks, Broken, Judge
from cairnmq.testing.replicas.machine import Machine
from cairnmq.testing.replicas.schedule import Network, Schedule
from cairnmq.testing.replicas.sim_store import SimStore

SETTLE_MS = 120_000
WAVES = 5


class Shape(Struct, frozen=True):
    """Which kinds of faults a seed has at all, and how large its cluster is."""

    brokers: int
    journals: int
    min_isr: int
    acks: tuple[Acks, ...]
    kills: bool
    power: bool
    pauses: bool
    cuts: bool
    store_away: bool
    clean_stops: bool
    all_lose_power: bool
    damage: bool
    spite: bool
    long_absence: bool

    @classmethod
    def draw(cls, random: Random) -> Shape:
        """Each seed differs."""
        brokers = random.choice([3, 3, 5])
        kinds = [Acks.ONE, Acks.INTERVAL, Acks.COMMIT]
        acks = tuple(random.sample(kinds, random.randint(1, 3))) if random.random() < 0.7 else (Acks.COMMIT,)
        flags = [random.random() < 0.6 for _ in range(7)]
        flags[1] = flags[1] or random.random() < 0.4
        flags.append(Acks.INTERVAL not in acks and random.random() < 0.3)  # else a person would have to decide
        flags += [random.random() < 0.6, flags[1] and random.random() < 0.4]
        return cls(brokers, random.choice([1, 1, 2]), random.choice([1, 2]), acks, *flags)


class WorldParts:
    """What other worlds are made of, and choose."""

    random: Random
    shared: Shared
    store: SimStore
    machines: dict[int, Machine]

    def _draw(self) -> Shape:
        return Shape.draw(self.random)

    def _whole(self, record: JournalRecord) -> list[int]:
        """The replicas that must be equal when nothing goes wrong any more."""
        return list(record.replicas)

    def _process(self, machine: Machine) -> BrokerProcess:
        return BrokerProcess(machine, self.shared)

    def _takes_requests(self, process: BrokerProcess) -> bool:
        """Whether producers send it any."""
        return process.alive and not process.paused

    def _any(self) -> int:
        """Mostly a leader: it hurts more."""
        leaders = [kept.record.leader.broker for kept in self.store.journals.values() if kept.record.leader]
        if leaders and self.random.random() < 0.6:
            return self.random.choice(leaders)
        return self.random.choice(list(self.machines))


class ReplicaWorld(WorldParts):
    """Make it, `run` it; `Broken` says what went wrong."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.shape = shape = self._draw()
        self.schedule = Schedule(self.random)
        self.counts: Counter[str] = Counter()
        brokers = range(1, shape.brokers + 1)
        sets = replica_sets([BrokerPlace(broker) for broker in brokers], 3, led=2)
        replicas = self.random.sample(sets, shape.journals)
        # A journal begins with an ISR of all its replicas, in the life before their first.
        records = [
            JournalRecord(number, ids, leader=None, epoch=0, isr=tuple(Member(b, 0) for b in ids))
            for number, ids in enumerate(replicas)
        ]
        self.store = SimStore(self.schedule, records)
        self.shared = Shared(
            self.schedule, Network(self.schedule), self.store, Judge(), {}, shape.min_isr, prompt=seed % 4 == 0
        )
        self.machines = {
            broker: Machine(broker, [n for n, ids in enumerate(replicas) if broker in ids]) for broker in brokers
        }
        self._payload = 0
        self._away: set[int] = set()  # machines that nobody starts yet
        self.store.on_isr_change = self._isr_changed

    def run(self) -> None:
        """Faults in waves; between them everything may settle, and at the end it must."""
        for broker in self.machines:
            self.start(broker)
        self.schedule.after(0, self._expire)
        self.schedule.after(2_500, self._produce)
        for _ in range(self.waves):
            until = self.schedule.now_ms + self.random.randint(5_000, 15_000)
            self.schedule.after(self.random.randint(2_000, 4_000), self._strike)
            self.schedule.run_until(until)
            if self.random.random() < 0.4:
                self.heal()
                self.schedule.run_until(self.schedule.now_ms + self.random.randint(1_000, 8_000))
        if self.shape.long_absence:
            self._armed = True
            self.schedule.run_until(self.schedule.now_ms + 80_000)
            self._away.clear()
        self.settle()

    def settle(self) -> None:
        """No more faults, and nobody produces: everything must come to rest, equal everywhere."""
        self._producing = False
        self.heal()
        deadline = self.schedule.now_ms + SETTLE_MS
        while (unsettled := self._unsettled()) and self.schedule.now_ms < deadline:
            self.schedule.run_until(self.schedule.now_ms + 1_000)
        if unsettled:
            raise Broken(unsettled)
        for number, kept in self.store.journals.items():
            self.shared.judge.at_rest(number, [self.machines[b].journals[number] for b in self._whole(kept.record)])

    def _unsettled(self) -> str:
        for number, kept in self.store.journals.items():
            record = kept.record
            if record.leader is None or not self.store.view().is_live(record.leader):
                return f"journal {number} has no leader: {record}"
            in_sync = {member.broker for member in record.isr}
            if in_sync != set(self._whole(record)):
                return f"the ISR of journal {number} is {in_sync} of {record.replicas}"
            if len({self.machines[broker].journals[number].end for broker in in_sync}) > 1:
                return f"a replica of journal {number} does not catch up"
            hosted = self.shared.processes[record.leader.broker].hosted[number]
            if hosted.leader is None or hosted.leader.in_flight or hosted.leader.replicated_end < hosted.disk.end:
                return f"the replicated end of journal {number} does not reach its end"
        return ""

    # ------------------------------------------------------------------------------------------------- what goes on

    waves = WAVES
    _producing = True
    _armed = False  # the next acknowledged record is the last before everything loses power

    def _expire(self) -> None:
        self.store.expire()
        self.schedule.after(100, self._expire)

    def _produce(self) -> None:
        if not self._producing:
            return
        self.schedule.after(self.random.randint(10, 200), self._produce)
        journal = self.random.randrange(self.shape.journals)
        believers = [
            process
            for process in self.shared.processes.values()
            if self._takes_requests(process) and journal in process.hosted
            and process.hosted[journal].leader is not None
        ]  # fmt: skip
        if not believers:
            return
        self._payload += 1
        process = self.random.choice(believers)
        acks, told = self.random.choice(self.shape.acks), partial(self._told, process.id)
        process.guarded(partial(process.produce, journal, self._payload, acks, told))()

    def _told(self, leader: int, stored: bool) -> None:
        self.counts["acknowledged" if stored else "not acknowledged"] += 1
        if stored and self._armed:
            self._armed = False
            self.schedule.after(0, lambda: self._lose_all_power_but_keep_away(leader))

    # --------------------------------------------------------------------------------------------------- the faults

    def start(self, broker: int) -> None:
        """A new process on a machine, after recovery."""
        machine = self.machines[broker]
        for journal in machine.journals.values():
            journal.recover()
        process = self._process(machine)
        self.shared.processes[broker] = process
        process.start()

    def _strike(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.schedule.after(self.random.randint(0, 4_000), self._strike_once)

    def _strike_once(self) -> None:
        allowed = [kind for kind, wanted in self._kinds().items() if wanted]
        if allowed:
            kind = self.random.choice(allowed)
            self.counts[kind.__name__.strip("_")] += 1
            kind()

    def _kinds(self) -> dict[Callable[[], None], bool]:
        """Faults, and whether this world has them."""
        shape = self.shape
        return {
            self._kill: shape.kills,
            self._lose_power: shape.power,
            self._pause: shape.pauses,
            self._cut: shape.cuts,
            self._lose_store: shape.store_away,
            self._stop: shape.clean_stops,
            self._lose_all_power: shape.all_lose_power and shape.power,
            self._damage: shape.damage and not self.counts["damage"],
        }

    def _end(self, broker: int) -> bool:
        process = self.shared.processes[broker]
        if not process.alive:
            return False
        for hosted in process.hosted.values():
            process.stop_leading(hosted)
        process.alive = False
        return True

    def _start_later(self, broker: int) -> None:
        process = self.shared.processes[broker]

        def start() -> None:
            if self.shared.processes[broker] is process and not process.alive and broker not in self._away:
                self.start(broker)

        self.schedule.after(self.random.choice([50, 500, 3_000, 8_000]), start)

    def _kill(self, broker: int | None = None) -> None:
        broker = self._any() if broker is None else broker
        if self._end(broker):
            self._start_later(broker)

    def _stop(self) -> None:
        broker = self._any()
        process = self.shared.processes[broker]
        if process.alive and not process.paused:
            process.stop_cleanly()
            self._start_later(broker)

    def _lose_power(self, broker: int | None = None) -> None:
        broker = self._any() if broker is None else broker
        machine = self.machines[broker]
        self._end(broker)
        self.shared.judge.lost_power(broker, machine.journals)
        for journal in machine.journals.values():
            journal.lose_power(self.random)
        self._start_later(broker)

    def _lose_all_power(self) -> None:
        for broker in self.machines:
            self._lose_power(broker)

    def _damage(self) -> None:
        """A disk lost bytes that it had synced. Only one machine of a world, and not the only member of an ISR."""
        broker = self._any()
        machine = self.machines[broker]
        for number, journal in machine.journals.items():
            record = self.store.journals[number].record
            whole = len(record.isr) > 1 or record.member(broker) is None
            if not whole or not journal.entries:
                self.counts["damage"] -= 1
                return
        self._end(broker)
        for number, journal in machine.journals.items():
            self.shared.judge.lost_bytes(broker, number)
            del journal.entries[self.random.randrange(len(journal.entries)) :]
            journal.synced = journal.end
            journal.known = journal.known.cut(journal.end)
            machine.damaged.add(number)
        machine.clean = 0
        self._start_later(broker)

    def _lose_all_power_but_keep_away(self, leader: int) -> None:
        """The one that acknowledged last comes back much later than the others: do they have all of it?"""
        self.counts["long_absence"] += 1
        self._away.add(leader)
        self._lose_all_power()

    def _pause(self) -> None:
        process = self.shared.processes[self._any()]
        if process.alive and not process.paused:
            process.paused = True
            self.schedule.after(self.random.choice([300, 2_500, 6_000]), process.resume)

    def _cut(self) -> None:
        one = self._any()
        others = [broker for broker in self.machines if broker != one]
        cut = set(self.random.sample(others, self.random.randint(1, len(others))))
        pairs = {pair for other in cut for pair in ((one, other), (other, one))}
        if self.random.random() < 0.2:
            pairs = {pair for pair in pairs if pair[0] == one}
        self.shared.network.cuts |= pairs
        self.schedule.after(self.random.choice([500, 4_000, 9_000]), lambda: self._join(pairs))

    def _join(self, pairs: set[tuple[int, int]]) -> None:
        self.shared.network.cuts -= pairs

    def _lose_store(self) -> None:
        away = [self._any()] if self.random.random() < 0.7 else list(self.machines)
        self.store.cut_off.update(away)

        def back() -> None:
            for broker in away:
                self.store.reachable(broker)

        self.schedule.after(self.random.choice([500, 1_500, 5_000]), back)

    def _isr_changed(self, before: JournalRecord, after: JournalRecord) -> None:
        """The worst moment for a fault: the store has the change, and the leader does not know it yet."""
        leader = after.leader
        if not self.shape.spite or leader is None or self.random.random() > 0.5 or not self._producing:
            return
        changed = {member.broker for member in set(before.isr) ^ set(after.isr)} - {leader.broker}
        if not changed:
            return
        self.counts["spite"] += 1
        shrunk = len(after.isr) < len(before.isr)
        if self.shape.power and self.random.random() < (0.8 if shrunk else 0.3):
            self._lose_power(leader.broker)
            return
        pairs = {pair for one in changed for pair in ((one, leader.broker), (leader.broker, one))}
        self.shared.network.cuts |= pairs
        self.store.cut_off.add(leader.broker)
        self.schedule.after(self.random.randint(1_000, 5_000), lambda: self.store.reachable(leader.broker))
        self.schedule.after(self.random.randint(3_000, 8_000), lambda: self._join(pairs))
        if self.shape.kills and self.random.random() < 0.5:
            self.schedule.after(self.random.randint(500, 2_500), lambda: self._kill(leader.broker))

    def heal(self) -> None:
        """Every fault is over; what is down is started."""
        self.shared.network.cuts.clear()
        for broker in list(self.store.cut_off):
            self.store.reachable(broker)
        for broker, process in list(self.shared.processes.items()):
            if process.paused:
                process.resume()
            if not process.alive:
                self.start(broker)
