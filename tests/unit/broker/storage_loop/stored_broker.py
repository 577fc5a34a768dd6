"""A broker of a cluster as tests of its journals need it: storage on real files, and a real splitter process."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cairnmq.broker.clocks import steady_ms, wall_ms
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import Refusal
from cairnmq.settings.broker import broker_config
from cairnmq.storage.engine import Engine, EngineConfig, Joining
from cairnmq.storage.files.buffers import LARGE, Chunks, ResponseArena
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import Leader
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.types import Slots
from unit.broker.rig import until
from unit.storage.cluster_harness import content, spec
from unit.storage.replica_harness import batch

SPECS = [spec(1), spec(2), spec(3, 9)]


class Broker:
    """One of a cluster: storage, and a splitter process. Hears what its journals tell."""

    def __init__(self, node: int, data: Path, life: int = 1, journals: Collection[int] = (4, 9)) -> None:
        self.node, self.data, self.life = node, data, life
        self.joining: list[Joining] = []
        self.told: set[tuple[str, int]] = set()

        def begin(joining: Joining) -> Leader:
            self.joining.append(joining)
            return Leader(node, life)

        journal_dir = str(data / "journal")
        for directory in (data, data / "journal"):
            directory.mkdir(exist_ok=True)
        engine = Engine.join(
            RealDisk(journal_dir),
            RealDisk(str(data)),
            SPECS,
            journals=journals,
            floor=lambda journal, note: note.replicated,
            next_queue=4,
            begin=begin,
            seed=70 + node,
            config=EngineConfig(node_id=node),
            now_ms=wall_ms(),
        )
        config = broker_config({"cairn.reserve.bytes": "65536"})
        assert not isinstance(config, Refusal)
        self.store = Store(
            engine,
            lock_fds=[],
            journal_dir=journal_dir,
            data_dir=str(data),
            config=config,
            slots=Slots(3, 1, (4,)),
            clock=wall_ms,
            steady=steady_ms,
        )
        self.store.observe(self)
        self.store.start()

    def written(self, journal: int) -> None:
        self.told.add(("written", journal))

    def synced(self, journal: int, end: int) -> None:
        self.told.add(("synced", journal))

    def end(self, journal: int = 4) -> int:
        return self.store.engine.paths[journal].journal.end

    async def lead(self, epoch: int, journal: int = 4) -> WritePath:
        path = await self.store.lead(journal, epoch)
        assert path is not None
        await until(lambda: self.end(journal) > path.epoch_start)
        return path

    async def put(self, number: int = 1) -> Placed:
        """Written here."""
        placed = self.store.append(self.store.queues[number], batch(), -1, wall_ms())
        assert isinstance(placed, Placed)
        await until(lambda: self.end(placed.journal) >= placed.end)
        return placed

    async def copy(self, leader: Broker, journal: int = 4) -> None:
        path = self.store.engine.paths[journal]
        assert isinstance(path, FollowPath)
        data = content(leader.store.engine, journal, self.end(journal))
        copy = path.take(memoryview(data), 99, wall_ms())
        assert copy is not None and await self.store.loops[journal].append(copy)

    async def sync(self, journal: int = 4) -> int:
        held = self.store.engine.paths[journal].journal
        self.store.loops[journal].sync()
        await until(lambda: held.synced == held.end)
        return held.end

    def counts(self, end: int, journal: int = 4) -> None:
        """All replicas have synced so much."""
        path = self.store.engine.paths[journal]
        if isinstance(path, FollowPath):
            self.store.advanced(path.replicated_to(end, end, wall_ms()))
        else:
            self.store.advanced([*path.replicated_to(end), *path.durable_to(end)])

    async def split(self, journal: int = 4) -> None:
        engine = self.store.engine
        await until(lambda: engine.split[journal] == engine.splittable(journal) == self.end(journal))

    def read(self, number: int = 1) -> int:
        """Batches that readers see from the first one on, in one read."""
        arena = ResponseArena(Chunks(kept_small=0, kept_large=1))
        queue = self.store.queues[number]
        found = self.store.engine.reads.read(queue, queue.log_start, LARGE, whole=True, cached=False, arena=arena)
        assert isinstance(found, Batches)
        return found.next_offset

    async def restarted(self, journals: Collection[int] = (4, 9)) -> Broker:
        await self.store.stop()
        return Broker(self.node, self.data, self.life + 1, journals)
