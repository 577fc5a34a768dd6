"""Three brokers' storage on simulated disks: journals that one of them leads, and bytes that are carried by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random

from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig, Joining
from cairnmq.storage.files.format import Keyed, Leader
from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.replica_harness import NOW, batch

JOURNALS = (4, 9)
Floor = Callable[[int, ReplicaNote], int]


def spec(number: int, journal: int = 4, flush: Flush = "commit") -> QueueSpec:
    return QueueSpec(number, "t", number, bytes(16), LogConfig(flush=flush), journal)


def replicated(journal: int, note: ReplicaNote) -> int:
    return note.replicated


def durable(journal: int, note: ReplicaNote) -> int:
    """After an election among members that had all lost power."""
    return note.durable


class Machine:
    """One broker. Queues 1 and 2 are in journal 4, queue 3 in journal 9."""

    def __init__(self, node: int, specs: Collection[QueueSpec]) -> None:
        self.node = node
        self.disks = (SimDisk(Random(2 * node)), SimDisk(Random(2 * node + 1)))
        self.specs = {each.queue_id: each for each in specs}
        self.life = 0
        self.joinings: list[Joining] = []
        self.start()

    def start(
        self,
        floor: Floor = replicated,
        journals: Collection[int] = JOURNALS,
        *,
        has_others: bool = False,
        had: Mapping[int, int] | None = None,
    ) -> None:
        """`had`: as an earlier start has registered it."""
        self.life += 10
        registered = had or {}

        def begin(joining: Joining) -> Leader:
            self.joinings.append(joining)
            return Leader(self.node, self.life)

        self.engine = Engine.join(
            *self.disks,
            self.specs.values(),
            journals=journals,
            floor=floor,
            next_queue=max(self.specs, default=0) + 1,
            begin=begin,
            seed=70 + self.node,
            config=EngineConfig(node_id=self.node, segment_bytes=600),
            now_ms=NOW,
            has_others=lambda journal: has_others,
            had=lambda journal: registered.get(journal, 0),
            slots=lambda journal: (1,),  # `fact` puts facts there
        )
        self.splitter = Splitter(
            *self.disks,
            load_checkpoint(self.disks[1]),
            lambda ids: [self.engine.queues[each].spec for each in ids if each in self.engine.queues],
            journals=self.engine.paths,
            round_bytes=300,
        )

    def killed(
        self, floor: Floor = replicated, *, has_others: bool = False, had: Mapping[int, int] | None = None
    ) -> None:
        self.disks = (self.disks[0].kill(), self.disks[1].kill())
        self.start(floor, has_others=has_others, had=had)

    def crashed(self, floor: Floor = replicated, seed: int = 1) -> None:
        """The power was lost."""
        self.disks = (self.disks[0].crash(Random(seed)), self.disks[1].crash(Random(seed + 1)))
        self.start(floor)

    # -------------------------------------------------------------------------------------------------------- sides

    def end(self, journal: int = 4) -> int:
        return self.engine.paths[journal].journal.end

    def leading(self, journal: int = 4) -> WritePath:
        path = self.engine.paths[journal]
        assert isinstance(path, WritePath)
        return path

    def following(self, journal: int = 4) -> FollowPath:
        path = self.engine.paths[journal]
        assert isinstance(path, FollowPath)
        return path

    def lead(self, epoch: int, journal: int = 4) -> WritePath:
        path = self.engine.lead(journal, epoch, NOW)
        assert path is not None and path.epoch_start == path.journal.end
        self.write(journal)
        return path

    def put(self, number: int = 1, *, count: int = 1, write: bool = True) -> Placed:
        queue = self.engine.queues[number]
        placed = self.engine.appends.append(queue, batch(count), -1, NOW)
        assert isinstance(placed, Placed), placed
        if write:
            self.write(queue.journal)
        return placed

    def fact(self, value: bytes, journal: int = 4) -> None:
        self.leading(journal).stage_keyed([Keyed("offsets", b"g", value)], NOW, queue_id=1)
        self.write(journal)

    def write(self, journal: int = 4) -> None:
        path = self.leading(journal)
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)

    def sync(self, journal: int = 4) -> None:
        path = self.engine.paths[journal]
        path.synced_to(path.sync())

    def copy(self, leader: Machine, journal: int = 4, size: int = 1 << 20) -> int:
        """What the leader has behind the own end; returns how many bytes were taken."""
        path, before = self.following(journal), self.end(journal)
        data = content(leader.engine, journal, before, size)
        copy = path.take(memoryview(data), leader.engine.paths[journal].journal.epoch, NOW)
        if copy is not None:
            path.write(copy)
            path.written(copy)
        return self.end(journal) - before

    # ----------------------------------------------------------------------------------------------------- splitting

    def split(self) -> None:
        for journal in self.engine.paths:
            while done := self.splitter.split(journal, self.engine.splittable(journal), NOW):
                self.engine.on_round(done)

    def checkpoint(self) -> None:
        published = self.splitter.checkpoint(NOW)
        self.engine.on_checkpoint(published)
        self.splitter.seen(published.serial)

    def offsets(self, number: int = 1) -> list[int]:
        """Of all visible batches."""
        queue, found = self.engine.queues[number], []
        offset = queue.log_start
        while offset < queue.high_watermark:
            fetched = self.engine.reads.read_batch(queue, offset, cached=False)
            assert isinstance(fetched, Batches)
            found.append(int.from_bytes(fetched.buffers[0][:8], "big"))
            offset = fetched.next_offset
        return found


def content(engine: Engine, journal: int, position: int, size: int = 1 << 20) -> bytes:
    data = b""
    while ranges := engine.file_ranges(journal, position + len(data), size - len(data)):
        data += b"".join(each.file.read(each.offset, each.size) for each in ranges if each.file is not None)
    return data


class Cluster:
    """Machine 1 leads both journals in epoch 5 to begin with."""

    def __init__(self, *, flush: Flush = "commit") -> None:
        specs = [spec(1, flush=flush), spec(2, flush=flush), spec(3, 9, flush)]
        self.machines = {node: Machine(node, specs) for node in (1, 2, 3)}
        self.leader = self.machines[1]
        for journal in JOURNALS:
            self.leader.lead(5, journal)
        self.spread()

    @property
    def followers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine is not self.leader]

    def spread(self, *, sync: bool = True) -> None:
        """All have written everything, and all but the latest bytes synced it; and all know."""
        for journal in JOURNALS:
            for follower in self.followers:
                while follower.copy(self.leader, journal):
                    pass
            if sync:
                for machine in self.machines.values():
                    machine.sync(journal)
            self.tell(journal)

    def tell(self, journal: int = 4) -> None:
        """What all have written and synced."""
        journals = [machine.engine.paths[journal].journal for machine in self.machines.values()]
        written, synced = min(each.end for each in journals), min(each.synced for each in journals)
        path = self.leader.leading(journal)
        path.replicated_to(written)
        path.durable_to(synced)
        for follower in self.followers:
            follower.following(journal).replicated_to(written, synced, NOW)
        for machine in self.machines.values():
            machine.engine.note(journal, ReplicaNote(written, synced, path.journal.epoch))

    def elect(self, node: int, epoch: int) -> None:
        """Another leader of both journals; the one before steps down."""
        for journal in JOURNALS:
            self.leader.engine.follow(journal, f"broker {node} leads")
        self.leader = self.machines[node]
        for journal in JOURNALS:
            self.leader.lead(epoch, journal)
