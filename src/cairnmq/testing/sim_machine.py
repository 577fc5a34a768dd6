"""A simulated machine that runs storage: it stops at any moment, and starts again from what its disks kept.

In the middle of disk operations side worlds branch off: there the machine stops, storage recovers, is checked against
the oracle, goes on splitting, stops again. The main world is struck too, and lives on with what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import Published, Resume, Round
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.fault_point import disarmed
from cairnmq.storage.files.format import BATCH, CHECKPOINTS, DELETED_SUFFIX, LOSSES
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Write
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.placement import Thresholds
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.oracle import KILL, POWER, JournalModel, QueueModel, demand
from cairnmq.testing.sim_checks import check_content, check_logs, check_state, check_verify, name
from cairnmq.testing.sim_clients import Sender
from cairnmq.testing.sim_damage import INDEXES, PACK, SEGMENT, UNDONE, Hurt, lose_end, repair
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.testing.sim_metadata import SLOT_COUNT, SimMetadata, fall_back
from cairnmq.types import OWN_PRODUCERS_FROM, Slots

Disks = tuple[SimDisk, SimDisk]  # of the journals, of the queue logs

EVENTS = (KILL, POWER)


class Struck(BaseException):
    """The process or the machine stops in the middle of a disk operation."""


class SplitterDied(BaseException):
    """The splitter process alone stops."""


class Tally(Struct):
    """What a run has been through. Crash points in the middle of a disk operation are counted by what it was for."""

    steps: int = 0
    crash_points: int = 0
    in_writes: int = 0
    in_syncs: int = 0
    in_rolls: int = 0
    in_rounds: int = 0
    in_checkpoints: int = 0
    in_deletions: int = 0
    in_repair: int = 0
    kills: int = 0
    power_losses: int = 0
    recoveries_struck: int = 0
    splitter_deaths: int = 0
    lost_reports: int = 0
    tries: int = 0
    failed_writes: int = 0
    failed_syncs: int = 0
    rewrites: int = 0
    resumes: int = 0
    repaired_segments: int = 0
    repaired_packs: int = 0
    repaired_indexes: int = 0
    lost_ends: int = 0
    batches: int = 0
    imports: int = 0
    rounds: int = 0
    checkpoints: int = 0
    merges: int = 0
    demotions: int = 0
    unsplits: int = 0
    clean_stops: int = 0
    fall_backs: int = 0
    accepted_losses: int = 0
    # where records have keys, and where there are groups and transactions
    compactions: int = 0
    commits: int = 0
    rebalances: int = 0
    ended_transactions: int = 0

    def struck(self, operation: str, *, on_journals: bool) -> None:
        kind, _, name = operation.partition(" ")
        if kind == "remove" or name.endswith(DELETED_SUFFIX):
            self.in_deletions += 1
        elif not on_journals:
            if kind.startswith("sync") or name.startswith(CHECKPOINTS):
                self.in_checkpoints += 1
            else:
                self.in_rounds += 1
        elif kind.startswith("sync"):
            self.in_syncs += 1
        elif kind == "create":
            self.in_rolls += 1
        else:
            self.in_writes += 1

    def add(self, other: Tally) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


def draw_ids(seed: int, count: int) -> tuple[int, ...]:
    """Of the journals; in some worlds not the first numbers."""
    rng = Random(f"journals of {seed}")
    return tuple(sorted(rng.sample(range(40), count)) if rng.random() < 0.4 else range(count))


class Shape(Struct, frozen=True):
    """What a seed's world looks like."""

    journals: tuple[int, ...]
    ext4: bool
    segment_bytes: int
    round_bytes: int
    retain_bytes: int
    thresholds: Thresholds
    fanout: int
    branch_share: float

    @classmethod
    def draw(cls, seed: int, rng: Random, branch_share: float) -> Shape:
        return cls(
            journals=draw_ids(seed, rng.choice((1, 1, 2))),
            ext4=rng.random() < 0.25,
            segment_bytes=rng.choice((1500, 6000, 20_000)),
            round_bytes=rng.choice((300, 3000, 50_000)),
            retain_bytes=rng.choice((0, 0, 5000)),
            thresholds=Thresholds(
                few=rng.choice((0, 0, 2, 100)),
                promote_round_bytes=rng.choice((500, 2000, 1 << 30)),
                promote_bytes=rng.choice((1000, 5000, 1 << 30)),
                demote_bytes=rng.choice((5000, 50_000)),
            ),
            fanout=rng.choice((2, 3, 5)),
            branch_share=branch_share,
        )


class Lane:
    """One journal's write path and what is under way on it."""

    def __init__(self, path: WritePath) -> None:
        self.path = path
        self.taken: Write | None = None  # on its way to the disk
        self.put: Write | None = None  # the disk has it, the path was not told yet
        self.put_at = 0
        self.synced: int | None = None  # likewise
        self.batch_ends: list[int] = []
        self.bounds: dict[int, int | None] = {}  # end of an entry -> its topic's flush.ms when it was staged
        self.visible_by: dict[int, list[tuple[int, int]]] = {}  # queue -> (offset, position) of records due a sync


class Machine:
    """Disks, a broker's storage on them, and what the oracle expects of it."""

    def __init__(self, seed: int, *, branch_share: float = 0.25, trace: Callable[[str], None] | None = None) -> None:
        self.rng = Random(seed)
        self.shape = Shape.draw(seed, self.rng, branch_share)
        self.tally = Tally()
        self.trace = trace or (lambda line: None)
        self.now = 1_000_000
        self.metadata = SimMetadata(slots=Slots(1, SLOT_COUNT, self.shape.journals))
        self.producer_ids = list(range(OWN_PRODUCERS_FROM, self.metadata.now.next_producer_id))  # for who wants one
        self.serial = 0
        self.specs: dict[int, QueueSpec] = {}
        self.senders: list[Sender] = []
        self.keys: tuple[bytes, ...] = ()  # of records; without any, records have none
        self.waiting = 0
        self.models = {number: JournalModel(number) for number in self.shape.journals}
        self.journal_disk = SimDisk(Random(self.rng.getrandbits(64)), ext4=self.shape.ext4)
        self.read_disk = SimDisk(Random(self.rng.getrandbits(64)), ext4=self.shape.ext4)
        self.strike_in = 0
        self.splitter_strike_in = 0
        self.kills = True
        self.hurt: Hurt | None = None  # damage that is not mended yet
        self.journals = self.shape.journals  # among which the queues of a new topic are spread
        self._open(KILL)

    # ------------------------------------------------------------------------------------------------- starting

    @property
    def pairs(self) -> list[tuple[Lane, JournalModel]]:
        """The journals, in the order of their ids."""
        return [(lane, self.models[number]) for number, lane in self.lanes.items()]

    @property
    def epoch(self) -> int:
        return self.engine.epoch

    def open_engine(self, journal_disk: SimDisk, read_disk: SimDisk) -> Engine:
        config = EngineConfig(segment_bytes=self.shape.segment_bytes, retain_bytes=self.shape.retain_bytes)
        specs = list(self.specs.values())
        return Engine.open(
            journal_disk,
            read_disk,
            specs,
            journals={*self.journals, *self.metadata.slots.cycle},
            begin=lambda known: self.metadata.begin(known, journal_disk),
            seed=77,
            config=config,
            now_ms=self.now,
            last_epoch=self.metadata.now.epoch,
        )

    def new_journal_of(self, queue_id: int) -> int:
        """By the settings of today."""
        return self.journals[queue_id % len(self.journals)]

    def _splitter(
        self, journal_disk: SimDisk, read_disk: SimDisk, journals: Iterable[int], resume: Resume | None = None
    ) -> Splitter:
        return Splitter(
            journal_disk,
            read_disk,
            load_checkpoint(read_disk),
            lambda queue_ids: [self.specs[queue_id] for queue_id in queue_ids if queue_id in self.specs],
            journals=journals,
            resume=resume,
            round_bytes=self.shape.round_bytes,
            thresholds=self.shape.thresholds,
        )

    def _recover(
        self, disks: Disks, models: dict[int, JournalModel], event: str, rng: Random
    ) -> tuple[Engine, Disks, dict[int, JournalModel], str]:
        """Opens the disks until that succeeds (it may be struck itself); checks what was found."""
        promised = {number: model.promised(event, self.now) for number, model in models.items()}
        if rng.random() < 0.1 and self.hurt is None:
            check_verify(disks[0], disks[1], self.specs, self.metadata.now)
        if rng.random() < 0.2:
            self.journals = self.shape.journals[: rng.randint(1, len(self.shape.journals))]
        if rng.random() < 0.1 and self.hurt is None:
            fall_back(self, disks, promised[self.shape.journals[0]], rng)
        while True:
            countdown = rng.randint(1, 14) if rng.random() < 0.35 else 0
            arm(disks, countdown)
            try:
                engine = self.open_engine(*disks)
                if self.hurt is not None:
                    engine = self._repair_recovered(engine, disks, self.hurt)
                break
            except Struck:
                self.tally.recoveries_struck += 1
                self.tally.crash_points += 1
                again = rng.choice(EVENTS)
                if again == POWER and event == KILL:
                    event = POWER
                    promised = {number: model.promised(POWER, self.now) for number, model in models.items()}
                disks = after_event(disks, again, rng)
        arm(disks, 0)
        for scan in engine.scans.values():
            demand(scan.damage is None and scan.hole is None, "a false alarm:", scan.damage_text or scan.hole)
        after = {}
        for number, model in models.items():
            bound = promised[number]
            if number not in engine.scans:
                demand(bound == 0, "journal", number, "is gone")
                after[number] = model
                continue
            scan = engine.scans[number]
            reader = JournalReader(disks[0], number)
            found = reader.entries(model.settled_end, scan.end) if reader.bases else ()
            kept = model.survivors(found, scan.end, bound, event)
            after[number] = model.restarted(kept, scan.end)
        self._check_clean(engine, models)
        self._check_recovered(engine, after)
        return engine, disks, after, event

    def _check_clean(self, engine: Engine, models: dict[int, JournalModel]) -> None:
        for number, scan in engine.scans.items():
            is_whole = scan.end >= models[number].written
            demand(not engine.was_clean or is_whole, "a stop that lost bytes counts as a clean one")

    def _repair_recovered(self, engine: Engine, disks: Disks, hurt: Hurt) -> Engine:
        """What was damaged before the stop, and perhaps half mended."""
        splitter = self._splitter(*disks, engine.paths)
        done = self._repair_with(splitter, hurt)
        if done == UNDONE:
            return self.open_engine(*disks)
        if done == PACK:
            self._checkpoint_on(engine, splitter)
        engine.repaired(hurt.queue_id, hurt.file)
        splitter.close()
        return engine

    def _repair_with(self, splitter: Splitter, hurt: Hurt) -> str:
        done = repair(splitter, hurt)
        self.tally.repaired_segments += done == SEGMENT
        self.tally.repaired_packs += done == PACK
        self.tally.repaired_indexes += done == INDEXES
        return done

    def _check_recovered(self, engine: Engine, models: dict[int, JournalModel]) -> None:
        keyed: dict[tuple[str, bytes], bytes] = {}
        for model in models.values():
            keyed.update(model.settled.keyed)
            demand(model.settled.epoch < engine.epoch, "the epoch did not rise")
        found = {key: value for key, value in engine.keyed.items() if key[0] != LOSSES}
        demand(found == keyed, "keyed facts: found", found, "instead of", keyed)
        for queue in engine.queues.values():
            expected = models[queue.journal].settled.queues.get(queue.queue_id) or QueueModel()
            check_state(queue, expected)
            demand(queue.high_watermark == queue.end == expected.end, name(queue), "is not visible to its end")
            self._check_content(engine, queue, expected)

    def _check_content(self, engine: Engine, queue: Queue, expected: QueueModel) -> None:
        check_content(engine, queue, expected)

    def _open(self, event: str) -> None:
        disks = (self.journal_disk, self.read_disk)
        self.engine, disks, self.models, event = self._recover(disks, self.models, event, self.rng)
        self.journal_disk, self.read_disk = disks
        self.hurt = None
        for disk in disks:
            disk.cold = 0.2
            disk.observe = self._observe
        self.lanes = {number: Lane(path) for number, path in self.engine.paths.items() if isinstance(path, WritePath)}
        for number, scan in self.engine.scans.items():
            if scan.end > scan.start:
                entries = JournalReader(self.journal_disk, number).entries(scan.start, scan.end)
                self.lanes[number].batch_ends = [entry.end for entry in entries if entry.kind == BATCH]
        self.live: dict[int, QueueModel] = {}
        self._relive(self.models.values())
        self.reports: list[Round | Published] = []  # on their way from the splitter
        self.acks: list[int] = []  # on their way to it
        self.splitter: Splitter | None = None
        self.maintenance: Maintenance | None = None
        self.seen = {
            queue_id: (queue.log_start, queue.high_watermark) for queue_id, queue in self.engine.queues.items()
        }
        self.strike_in = self.rng.choice((self.rng.randint(1, 30), self.rng.randint(1, 600)))
        self.trace(f"open: epoch {self.epoch}, ends {[scan.end for scan in self.engine.scans.values()]}")
        for sender in self.senders:
            sender.forget(power_lost=event == POWER)
        self.waiting = 0

    def _relive(self, models: Iterable[JournalModel]) -> None:
        """What the queues hold, from the model: after a start, and after offsets were taken back."""
        for model in models:
            for queue_id in [queue.queue_id for queue in self.engine.queues.values() if queue.journal == model.number]:
                self.live.pop(queue_id, None)
            self.live.update(model.tip().queues)

    # -------------------------------------------------------------------------------------------------- striking

    def _observe(self, disk: SimDisk) -> None:
        """In the middle of an operation of the main world."""
        if self.rng.random() < self.shape.branch_share:
            self.tally.struck(disk.last_operation, on_journals=disk is self.journal_disk)
            self.tally.in_repair += self.hurt is not None
            with disarmed():
                self._branch(self._event())
        if self.splitter_strike_in:
            self.splitter_strike_in -= 1
            if not self.splitter_strike_in:
                raise SplitterDied
        self.strike_in -= 1
        if self.strike_in <= 0:
            self.tally.struck(disk.last_operation, on_journals=disk is self.journal_disk)
            raise Struck

    def _event(self) -> str:
        return self.rng.choice(EVENTS) if self.kills else POWER

    def _branch(self, event: str) -> None:
        """A side world in which the machine stops here; it is left when it has shown that nothing was lost."""
        rng = Random(self.rng.getrandbits(64))
        self.tally.crash_points += 1
        disks = after_event((self.journal_disk, self.read_disk), event, rng)
        kept = replace(self.metadata), self.journals
        if event == KILL and rng.random() < 0.1:
            self._lose_end((disks[0].kill(rng), disks[1].kill(rng)), rng)
            self.metadata = replace(kept[0])
        try:
            engine, disks, models, _ = self._recover(disks, self.models, event, rng)
            while rng.random() < 0.6:
                again = self._split_on(engine, disks, rng)
                if again is None:
                    self._check_recovered(engine, models)
                    break
                self.tally.crash_points += 1
                engine, disks, models, _ = self._recover(after_event(disks, again, rng), models, again, rng)
        finally:
            self.metadata, self.journals = kept

    def _lose_end(self, disks: Disks, rng: Random) -> None:
        """A journal that lost bytes which were synced says so, or all of them are in queue logs."""
        model = rng.choice(list(self.models.values()))
        if not lose_end(rng, disks[0], model.number):
            return
        engine = self.open_engine(*disks)
        scan = engine.scans[model.number]
        if scan.damage is None:
            # What was not synced is gone too, as after a power loss.
            demand(scan.end >= model.durable, "journal", model.number, "lost its end, and nobody says so:", scan)
            return
        self.tally.lost_ends += 1
        for queue_id, held in model.settled.queues.items():
            queue = engine.queues.get(queue_id)
            if queue is not None and queue.end < held.end:
                answer = engine.reads.read(queue, queue.end, 1000, whole=True, cached=False)
                is_told = isinstance(answer, Refusal) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR
                demand(is_told, name(queue), "ended at", held.end, "and says of its end", queue.end, answer)

    def _split_on(self, engine: Engine, disks: Disks, rng: Random) -> str | None:
        """Splits and checkpoints what a recovery found; says which event ended that, if any did."""
        arm(disks, rng.randint(1, 40))
        try:
            splitter = self._splitter(*disks, engine.paths)
            for number in engine.paths:
                while done := splitter.split(number, engine.splittable(number), self.now):
                    check_logs(disks[1], done, self.specs)
                    engine.on_round(done)
                    if rng.random() < 0.2:
                        self._checkpoint_on(engine, splitter)
            self._checkpoint_on(engine, splitter)
            maintenance = Maintenance(splitter, self.shape.fanout)
            while maintenance.step():
                pass
            self._checkpoint_on(engine, splitter)
            self._compact_on(engine, splitter, maintenance)
        except Struck:
            return rng.choice(EVENTS)
        arm(disks, 0)
        return None

    def _compact_on(self, engine: Engine, splitter: Splitter, maintenance: Maintenance) -> None:
        """Nothing is to be compacted here."""

    def _checkpoint_on(self, engine: Engine, splitter: Splitter) -> None:
        published = splitter.checkpoint(self.now)
        engine.on_checkpoint(published)
        splitter.seen(published.serial)

    def _strike(self, event: str) -> None:
        """The main world stops and starts again."""
        self.trace(f"{event} in {self.journal_disk.last_operation} / {self.read_disk.last_operation}")
        self.tally.crash_points += 1
        if event == KILL:
            self.tally.kills += 1
        else:
            self.tally.power_losses += 1
        self.journal_disk, self.read_disk = after_event((self.journal_disk, self.read_disk), event, self.rng)
        self._open(event)


def arm(disks: Disks, countdown: int) -> None:
    """Stops in the middle of the operation of that number on either disk; 0: never."""
    left = countdown

    def observe(disk: SimDisk) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Struck

    for disk in disks:
        disk.observe = observe if countdown else None


def after_event(disks: Disks, event: str, rng: Random) -> Disks:
    """The disks as the next process finds them."""
    journal_disk, read_disk = disks
    if event == KILL:
        return journal_disk.kill(rng), read_disk.kill(rng)
    return journal_disk.crash(rng), read_disk.crash(rng)
