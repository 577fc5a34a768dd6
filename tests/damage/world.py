"""A broker's two disks with everything on them that can be damaged, and what clients were told is there."""

from __future__ import annotations

from random import Random

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, Fault
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.placement import Thresholds
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk

NOW = 1_000_000
JOURNALS = 2
DEDICATED = LogConfig(model="dedicated", segment_bytes=3000, index_interval_bytes=400)
SHARED = LogConfig(model="shared")
SPECS = {
    number: QueueSpec(
        number, "t" if number < 5 else "s", number, bytes(16), DEDICATED if number < 5 else SHARED, number % JOURNALS
    )
    for number in range(1, 9)
}

Model = dict[int, dict[int, bytes]]  # queue -> base offset -> batch


class World:
    """Engine and splitter on two disks."""

    def __init__(self, journal_disk: SimDisk, read_disk: SimDisk, epoch: int, *, retain_bytes: int) -> None:
        self.journal_disk, self.read_disk, self.epoch, self.retain_bytes = journal_disk, read_disk, epoch, retain_bytes
        config = EngineConfig(segment_bytes=6000, retain_bytes=retain_bytes)
        self.engine = Engine.open(
            journal_disk, read_disk, SPECS.values(), begin=lambda _: epoch, seed=5, config=config, now_ms=NOW
        )
        self._splitter: Splitter | None = None

    @property
    def splitter(self) -> Splitter:
        if self._splitter is None:
            self._splitter = Splitter(
                self.journal_disk,
                self.read_disk,
                load_checkpoint(self.read_disk),
                lambda ids: [SPECS[number] for number in ids if number in SPECS],
                journals=range(JOURNALS),
                round_bytes=2000,
                thresholds=Thresholds(few=0, promote_round_bytes=1 << 30, promote_bytes=1 << 30, demote_bytes=0),
            )
        return self._splitter

    # ------------------------------------------------------------------------------------------------- writing

    def produce(self, rounds: int, random: Random, model: Model) -> None:
        for _ in range(rounds):
            for queue in self.engine.queues.values():
                records = [Record(0, NOW + queue.state.end + i, b"k", random.randbytes(40)) for i in range(2)]
                batch = bytearray(build_batch(records))
                placed = self.engine.path_of(queue).stage(queue, memoryview(batch), -1, NOW)
                assert isinstance(placed, Placed), placed
                model.setdefault(queue.queue_id, {})[placed.base_offset] = bytes(batch)
            for path in self.engine.paths.values():
                path.stage_fact(None, Keyed("offset", b"group", random.randbytes(4)), NOW)
                write = path.take()
                assert write is not None
                path.write(write)
                path.written(write)
                path.synced_to(path.sync())
        for queue_id, queue in self.engine.queues.items():
            for base, batch in model[queue_id].items():  # offsets and epochs are patched when it is staged
                assert len(batch) > 0 and base < queue.end

    def split(self) -> None:
        for number in range(JOURNALS):
            while (done := self.splitter.split(number, self.engine.splittable(number), NOW)) is not None:
                self.engine.on_round(done)

    def checkpoint(self) -> None:
        published = self.splitter.checkpoint(NOW)
        self.engine.on_checkpoint(published)
        self.splitter.seen(published.serial)

    def look(self) -> None:
        """Maintenance has its turn; logs are opened, and indexes are looked at."""
        assert not Maintenance(self.splitter).look(NOW)
        self.checkpoint()

    def merge(self) -> None:
        maintenance = Maintenance(self.splitter, fanout=3)
        while maintenance.step():
            pass

    def killed(self) -> tuple[SimDisk, SimDisk]:
        return self.journal_disk.kill(), self.read_disk.kill()

    # ------------------------------------------------------------------------------------------------- reading

    def read(self, queue_id: int, offset: int) -> bytes | Fault | None:
        """The batch holding `offset`; what was said instead of it; None if it is behind the end."""
        queue = self.engine.queues[queue_id]
        if offset >= queue.high_watermark:
            return None
        try:
            fetched = self.engine.reads.read_batch(queue, offset, cached=False)
        except Fault as fault:
            return fault
        assert isinstance(fetched, Batches), fetched
        return b"".join(bytes(buffer) for buffer in fetched.buffers)

    def read_all(self, queue_id: int, start: int = 0) -> dict[int, bytes]:
        """In large reads, as a consumer does, up to the first that fails."""
        queue = self.engine.queues[queue_id]
        found: dict[int, bytes] = {}
        offset = max(queue.log_start, start)
        while offset < queue.high_watermark:
            try:
                fetched = self.engine.reads.read(queue, offset, 700, whole=True, cached=False)
            except Fault:
                break
            assert isinstance(fetched, Batches) and fetched.size, fetched
            data = b"".join(bytes(buffer) for buffer in fetched.buffers)
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                found[int.from_bytes(data[:8], "big")] = data[:size]
                data = data[size:]
            offset = fetched.next_offset
        return found

    def repair(self, faults: list[tuple[int, Fault]]) -> None:
        """As the splitter's process does: what reads and openings found, as far as journals hold it."""
        repairer = Repairer(self.splitter)
        places = [(queue_id, fault.place) for queue_id, fault in faults if isinstance(fault, Damage)]
        done: set[str] = set()
        for queue_id, place in [*places, *self.splitter.damages]:
            if place.file in done:
                continue
            done.add(place.file)
            try:
                repairer.repair(queue_id, place.file)
            except Corrupt:
                continue
        self.checkpoint()
        for queue in self.engine.queues.values():
            queue.reader = None


def made(seed: int, *, retain_bytes: int) -> tuple[World, Model]:
    """Two starts, several checkpoints, merged packs, closed segments; the last few batches are not split yet."""
    random, model = Random(seed), dict[int, dict[int, bytes]]()
    world = World(SimDisk(Random(1)), SimDisk(Random(2)), 1, retain_bytes=retain_bytes)
    for step in range(6):
        if step == 3:
            world = World(*world.killed(), epoch=2, retain_bytes=retain_bytes)
        world.produce(6, random, model)
        world.split()
        world.checkpoint()
        if step % 2:
            world.merge()
            world.checkpoint()
    world.produce(5, random, model)
    world.split()
    world.checkpoint()
    world.produce(5, random, model)
    for queue_id in model:  # what was acknowledged, as the broker shows it
        shown = world.read_all(queue_id)
        assert sorted(shown) == sorted(model[queue_id])
        assert all(shown[base][61:] == model[queue_id][base][61:] for base in shown)
        model[queue_id] = shown
    return world, model
