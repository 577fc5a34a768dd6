"""The world of replicas, where journals are kept for a while only: disks are lost, and replicas are installed."""

from __future__ import annotations

from random import Random

from cairnmq.replication.follower import JournalFollower
from cairnmq.replication.messages import FetchPosition, FetchReply, Gone
from cairnmq.replication.records import Kept
from cairnmq.testing.replicas.broker_process import BrokerProcess, Hosted
from cairnmq.testing.replicas.judge import Acks, Broken
from cairnmq.testing.replicas.machine import Machine, ModelEntry
from cairnmq.testing.replicas.world import ReplicaWorld

HELD_MS = 10_000
RETRY_MS = 700


class InstallingProcess(BrokerProcess):
    """Its journals lose their beginnings; it gives them to others, and takes them over."""

    world: InstallWorld

    def __init__(self, machine: Machine, world: InstallWorld) -> None:
        super().__init__(machine, world.shared)
        self.world = world
        self.holds: dict[tuple[int, int], tuple[int, int]] = {}  # journal, follower -> position, until when
        self.installing: dict[int, int] = {}  # journal -> epoch

    # ------------------------------------------------------------------------------------------------------ a leader

    def hold(self, journal: int, follower: int, position: int) -> None:
        self.holds[journal, follower] = position, self.shared.schedule.now_ms + HELD_MS

    def held(self, journal: int) -> int:
        """The journal is kept from here on."""
        now_ms = self.shared.schedule.now_ms
        kept = [at for (number, _), (at, until) in self.holds.items() if number == journal and until > now_ms]
        return min(kept, default=1 << 60)

    def tick(self) -> None:
        super().tick()
        random = self.world.installs
        for number, hosted in self.hosted.items():
            if random.random() < 0.1:
                hosted.learn()
                safe = min(hosted.known.durable, hosted.disk.synced)
                ends = [0, *(entry.end for entry in hosted.disk.entries if entry.end <= safe)]
                split = ends[-1 - min(len(ends) - 1, random.choice([0, 0, 3]))]
                first = ends[-1 - min(len(ends) - 1, random.choice([0, 2, 9]))]
                hosted.disk.retain(min(first, self.held(number)), split)

    def asked(self, journal: int, asked: FetchPosition, follower: BrokerProcess) -> None:
        hosted = self.hosted[journal]
        if hosted.leader is not None:
            hosted.leader.first = hosted.disk.first
        super().asked(journal, asked, follower)

    def snapshot(self, journal: int, follower: int, epoch: int) -> list[ModelEntry] | None:
        """All below the last checkpoint; None: this broker does not lead in that epoch."""
        hosted = self.hosted[journal]
        if hosted.leader is None or hosted.leader.epoch != epoch:
            return None
        self.hold(journal, follower, hosted.disk.split)
        return [entry for entry in hosted.disk.entries if entry.end <= hosted.disk.split]

    # ---------------------------------------------------------------------------------------------------- a follower

    def take_role(self, hosted: Hosted, kept: Kept) -> None:
        """Another epoch ends an install before this replica follows or leads."""
        if self.installing.get(hosted.number, kept.record.epoch) < kept.record.epoch:
            self.end_install(hosted)
        if hosted.number not in self.installing:
            super().take_role(hosted, kept)

    def end_install(self, hosted: Hosted) -> None:
        del self.installing[hosted.number]
        hosted.disk.staged = None

    def stays_out(self, hosted: Hosted, reply: FetchReply, reason: str) -> None:
        if isinstance(reply, Gone) and hosted.follower is not None:
            self.install(hosted, hosted.follower)
        else:
            super().stays_out(hosted, reply, reason)

    def install(self, hosted: Hosted, follower: JournalFollower) -> None:
        """Asks until it is told, or another epoch begins."""
        epoch, leader = follower.record.epoch, follower.record.leader
        assert leader is not None
        hosted.follower = None
        self.installing[hosted.number] = epoch
        self.world.counts["installs begun"] += 1

        def ask() -> None:
            if self.installing.get(hosted.number) != epoch or hosted.disk.staged is not None:
                return
            self.later(RETRY_MS, ask)
            self.shared.network.send(self.id, leader.broker, arrive)

        def arrive() -> None:
            process = self.shared.processes.get(leader.broker)
            if isinstance(process, InstallingProcess):
                process.guarded(lambda: told(process))()

        def told(process: InstallingProcess) -> None:
            entries = process.snapshot(hosted.number, self.id, epoch)
            if entries is not None:
                slow = self.world.installs.choice([20, 200, 2_000])
                answer = self.guarded(lambda: self.taken(hosted, epoch, entries))
                self.shared.schedule.after(slow, lambda: self.shared.network.send(process.id, self.id, answer))

        ask()

    def taken(self, hosted: Hosted, epoch: int, entries: list[ModelEntry]) -> None:
        """It is whole on the disk; a moment later the process starts again with it."""
        if self.installing.get(hosted.number) != epoch or hosted.disk.staged is not None:
            return
        hosted.disk.staged = entries
        self.world.counts["installs"] += 1
        self.later(self.world.installs.choice([5, 50, 500, 4_000]), lambda: self.world.restart(self))


class InstallWorld(ReplicaWorld):
    """Draws of its own leave the seeds of the other world as they are."""

    def __init__(self, seed: int) -> None:
        self.installs = Random(~seed)
        super().__init__(seed)
        # after a wipe a person would have to decide whether what was never synced elsewhere may be lost
        self.wipes = Acks.INTERVAL not in self.shape.acks and self.installs.random() < 0.8

    def _process(self, machine: Machine) -> BrokerProcess:
        return InstallingProcess(machine, self)

    def restart(self, process: InstallingProcess) -> None:
        """In order, as after SIGTERM."""
        if (
            process.alive
            and self.shared.processes[process.id] is process
            and any(hosted.disk.staged is not None for hosted in process.hosted.values())
        ):
            process.stop_cleanly()
            self.start(process.id)

    def _strike_once(self) -> None:
        if self.wipes and self.installs.random() < 0.3:
            self.wipe()
        else:
            super()._strike_once()

    def _damage(self) -> None:
        """It does not ask whether others have lost theirs."""
        if self.wipes:
            self.wipe()
        else:
            super()._damage()

    def wipe(self) -> None:
        """A broker loses one disk or both, and starts on empty ones. Not one whose records nobody else may have."""
        broker = self.installs.choice(list(self.machines))
        machine = self.machines[broker]
        for number in machine.journals:
            record = self.store.journals[number].record
            others = [member.broker for member in record.isr if member.broker != broker]
            if len(others) < 2 or any(number in self.machines[other].damaged for other in others):
                return
        self.counts["wipes"] += 1
        self._end(broker)
        loses_journals, loses_logs = self.installs.choice([(True, False), (False, True), (True, True)])
        for number, journal in machine.journals.items():
            self.shared.judge.lost_bytes(broker, number)
            if loses_logs:
                journal.lose_queue_logs()
            if loses_journals:
                journal.lose_journal()
            machine.damaged.add(number)
        machine.clean = 0
        self._start_later(broker)

    def settle(self) -> None:
        super().settle()
        for machine in self.machines.values():
            if any(journal.staged is not None for journal in machine.journals.values()):
                raise Broken(f"an install is left on broker {machine.broker}")
