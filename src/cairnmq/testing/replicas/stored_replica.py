"""A machine whose replica is real storage on a simulated disk, and the life of the process on it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random

from msgspec import Struct

from cairnmq.replication.follower import JournalFollower, KnownEnds
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.format import (
    BATCH,
    FACT,
    NO_SEGMENTS,
    Entry,
    JournalMark,
    Keyed,
    KeyedRow,
    Leader,
    QueueRow,
    StartMoved,
    decode_fact,
)
from cairnmq.storage.journal.file_ranges import epoch_starts, file_ranges
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNote, ReplicaNoteFile
from cairnmq.storage.live.follow_path import Copy, FollowPath, MustReopen, demoted
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Keyeds, Write, put_keyed
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery.own_epochs import led_here
from cairnmq.storage.recovery.replay import Replicated, followed, live_queues, scan_journal
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_disk import SimDisk

NOW = 1000  # of all that is stored: replicas differ in nothing else


class Topics:
    """Queue ids as the metadata give them out."""

    def __init__(self, slots: int = 0) -> None:
        self.specs: dict[int, QueueSpec] = {}
        self.next_queue = 1 + slots  # the next id to be given; the first ones are those of coordinators

    def add(self, config: LogConfig) -> None:
        """A topic of one partition."""
        number = self.next_queue
        self.specs[number] = QueueSpec(number, "t", number, bytes(16), config)
        self.next_queue += 1

    def below(self, next_queue: int) -> list[QueueSpec]:
        """Those that somebody knows whose image has this."""
        return [spec for number, spec in self.specs.items() if number < next_queue]


class Tip(Struct):
    """What a run of entries means, said without the code that is tested: the state of each queue, and keyed facts."""

    states: dict[int, QueueState]
    keyed: Keyeds
    batches: int = 0


def tip_of(entries: list[Entry], end: int, facts_end: int, known: Iterable[int]) -> Tip:
    """Of all entries up to `end`; moved starts and keyed facts up to `facts_end`. Queues not `known` are gone."""
    tip = Tip({number: QueueState() for number in known}, {})
    for entry in entries:
        if entry.end > end:
            break
        state = tip.states.get(entry.queue_id)
        if entry.kind == BATCH:
            tip.batches += 1
            if state is not None:
                state.follow(entry, "t", entry.queue_id, NOW)
        elif entry.kind == FACT and entry.end <= facts_end:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                put_keyed(tip.keyed, fact)
            elif isinstance(fact, StartMoved) and state is not None:
                state.move_start(fact.offset)
    return tip


class StoredReplica:
    """What outlives a process: the disk, the last checkpoint, and what the store has of this broker."""

    def __init__(self, broker: int, segment_bytes: int, random: Random) -> None:
        self.broker = broker
        self.segment_bytes = segment_bytes
        self.disk = SimDisk(Random(random.getrandbits(64)), ext4=random.random() < 0.25)
        self.disk.make_dir("0")
        self.disk.sync_dir("")
        self.image = CheckpointImage()
        self.next_queue = 1  # of the metadata that the process has read
        self.synced = 0  # when the last process ended


class Life:
    """One life of the process: recovery, then the roles that it is given."""

    def __init__(self, machine: StoredReplica, topics: Topics, me: Member, record: JournalRecord) -> None:
        self.machine = machine
        self.topics = topics
        self.me = me
        self.leader: JournalLeader | None = None
        self.follower: JournalFollower | None = None
        self.epoch = 0  # the latest that was seen
        self.taken: Write | None = None  # on its way to the disk
        self.syncing: int | None = None  # what the sync under way covers
        self.late: list[tuple[FetchPosition, FetchReply, bytes]] = []
        self.on_lost: Callable[[], None] = lambda: None  # told first when it leads no more
        self.failing = 0  # operations of the next write that the disk refuses
        self.known: KnownEnds
        self.note: ReplicaNoteFile
        self.path: WritePath | FollowPath
        self.queues: dict[int, Queue]
        self.keyed: Keyeds
        self.open(record)

    def open(self, record: JournalRecord) -> None:
        """Recovery. An election since the note was stored may have cut below what it calls replicated."""
        machine = self.machine
        self.note = ReplicaNoteFile(machine.disk, 0)
        noted = self.note.kept
        known = KnownEnds(noted.replicated, noted.durable, noted.epoch)
        known = KnownEnds(known.floor(record), known.durable, known.epoch)
        self.queues = live_queues(self.topics.below(machine.next_queue), machine.image)
        self.keyed = machine.image.keyed_values()
        rule = Replicated(
            replicated_end=known.replicated,
            durable_end=known.durable,
            next_queue=machine.next_queue,
            led=led_here(machine.disk, 0, {self.me.broker}, noted),
        )
        scan, reader = scan_journal(
            machine.disk, 0, machine.image, self.queues, self.keyed, now_ms=NOW, replicated=rule
        )
        demand(scan.damage is None and not scan.gaps, "broker", machine.broker, "finds", scan.damage_text, scan.gaps)
        self.path = followed(
            machine.disk,
            reader,
            scan,
            member=Leader(self.me.broker, self.me.broker_epoch),
            seed=70 + machine.broker,
            segment_bytes=machine.segment_bytes,
            note=self.note,
        )
        self.history = EpochHistory(epoch_starts(self.path.journal), self.path.journal.end)
        self.split = scan.start
        ends = self.path.journal
        self.known = known.learned(ends.replicated_end, ends.durable_end, known.epoch)

    def entries(self) -> list[Entry]:
        """The whole journal."""
        reader = JournalReader(self.machine.disk, 0)
        reader.seed = self.path.journal.seed
        return list(reader.entries(0, self.path.journal.end)) if reader.bases else []

    def bytes_from(self, position: int, size: int) -> bytes:
        """Of the journal, across segments."""
        data = b""
        while ranges := file_ranges(self.path.journal, position + len(data), size - len(data)):
            for each in ranges:
                assert each.file is not None
                part = each.file.read(each.offset, each.size)
                demand(len(part) == each.size, "broker", self.machine.broker, "cannot read its journal after", position)
                data += part
        return data

    # -------------------------------------------------------------------------------------------------------- roles

    def learn_queues(self) -> None:
        """The metadata are read."""
        machine = self.machine
        for number in self.queues.keys() - self.topics.specs.keys():
            del self.queues[number]  # deleted
        for number, spec in self.topics.specs.items():
            if number >= machine.next_queue:
                self.queues[number] = Queue(spec, QueueState())
        machine.next_queue = self.topics.next_queue
        if isinstance(self.path, FollowPath):
            self.path.knows_queues(machine.next_queue, NOW)

    def stop_leading(self) -> None:
        """Another one leads, or nobody."""
        assert self.leader is not None and isinstance(self.path, WritePath)
        self.on_lost()
        self.write_on()
        self.learn()
        self.leader = None
        self.path = demoted(self.path, self.queues, self.machine.next_queue, "broker 9 leads", self.note)

    def promote(self, epoch: int) -> int:
        """Returns where the epoch begins."""
        assert isinstance(self.path, FollowPath)
        path = self.path.promoted(epoch, NOW)
        if path is None:
            self.learn_queues()
            path = self.path.promoted(epoch, NOW)
        assert path is not None
        self.follower, self.path = None, path
        start = path.journal.end
        self.write_on()
        self.history.begin(epoch, start)
        self.history.extend(path.journal.end)
        return start

    def learn(self) -> None:
        """What the role knows."""
        if self.leader is not None:
            self.known = self.known.learned(self.leader.replicated_end, self.leader.durable_end, self.leader.epoch)
        elif self.follower is not None:
            self.known = self.follower.known

    # ------------------------------------------------------------------------------------------------------ leading

    def take(self) -> None:
        """A group is on its way to the disk."""
        if isinstance(self.path, WritePath) and self.taken is None:
            self.taken = self.path.take()

    def write_on(self) -> None:
        """It arrives, or not."""
        path = self.path
        assert isinstance(path, WritePath)
        self.take()
        write, self.taken = self.taken, None
        if write is None:
            return
        self._fail()
        try:
            path.write(write)
        except OSError as error:
            path.failed(write, str(error))
            return
        finally:
            self.machine.disk.faults.clear()
        path.written(write)
        if self.leader is not None:
            self.history.extend(path.journal.end)
            self.leader.written()
            self.advance()

    def advance(self) -> None:
        """What the leader's ends mean to its storage."""
        path, leader = self.path, self.leader
        if leader is None or not isinstance(path, WritePath):
            return
        if leader.replicated_end > path.journal.replicated_end:
            path.replicated_to(leader.replicated_end)
        if leader.durable_end > path.journal.durable_end:
            path.durable_to(leader.durable_end)
        self.learn()

    # ---------------------------------------------------------------------------------------------------- following

    def append(self, data: bytes, asked: FetchPosition, reply: Accepted) -> None:
        """The leader's bytes at the own end."""
        path, follower = self.path, self.follower
        assert isinstance(path, FollowPath) and follower is not None
        copy = path.take(memoryview(data), follower.record.epoch, NOW)
        if copy is not None:
            self._write_copy(path, copy)
        follower.appended(reply)
        self.known = follower.known
        path.replicated_to(self.known.replicated, self.known.durable, NOW)
        follower.shows(asked, reply, path.folded_end)

    def _fail(self) -> None:
        """The disk refuses a write, perhaps in the middle of it."""
        disk, at, self.failing = self.machine.disk, self.failing, 0
        if at:
            disk.faults[disk.operations + at] = errno.ENOSPC

    def _write_copy(self, path: FollowPath, copy: Copy) -> None:
        self._fail()
        try:
            path.write(copy)
        except OSError:
            self.machine.disk.faults.clear()
            path.failed(copy, "the disk refuses")
        else:
            path.written(copy)
        self.machine.disk.faults.clear()
        for group, epoch in copy.groups[: copy.done]:
            self.history.begin(epoch, group.start)
            self.history.extend(group.end)

    def cut(self, to: int) -> bool:
        """Where the journals part. Below what is folded only after an election among members that all lost power: then
        the process starts again from its checkpoint, and this returns True."""
        follower = self.follower
        assert follower is not None
        epoch = max((epoch for epoch, start in self.history.starts() if start < to), default=0)
        assert isinstance(self.path, FollowPath)
        reopened = False
        try:
            self.path.cut(to, epoch, follower.record.epoch)
        except MustReopen:
            reopened = True
            self.machine.disk = self.machine.disk.kill()
            self.open(follower.record)
            self.follower = JournalFollower(
                self.me, follower.record, self.history, synced=self.path.journal.synced, known=self.known
            )
            self.syncing, follower = None, self.follower
            self.path.cut(to, epoch, follower.record.epoch)
        follower.was_cut(to)
        self.known = follower.known
        if self.syncing is not None:
            self.syncing = min(self.syncing, to)
        return reopened

    # ------------------------------------------------------------------------------------------- sync and checkpoint

    def begin_sync(self) -> None:
        """It covers what is written now."""
        if self.syncing is None:
            self.path.sync_begins()
            self.syncing = self.path.sync()

    def end_sync(self) -> None:
        """The owner hears of it."""
        end, self.syncing = self.syncing, None
        if end is None:
            return
        self.path.synced_to(end)
        if self.leader is not None:
            self.leader.synced_to(self.path.journal.synced)
            self.advance()
        elif self.follower is not None:
            self.follower.synced_to(end)

    def checkpoint(self) -> None:
        """As the splitter makes it: what it may split, and the state of each queue there."""
        self.propose_starts()
        machine, limit = self.machine, self.path.splittable()
        if limit <= self.split:
            return
        entries = self.entries()
        tip = tip_of(entries, limit, limit, set(self.queues))
        before = sum(entry.kind == BATCH for entry in entries if entry.end <= self.split)
        self.split = limit
        self.path.unsplit_entries -= tip.batches - before
        for number, state in tip.states.items():
            self.queues[number].split_to(state.end)
        journal = self.path.journal
        image = CheckpointImage()
        epoch = max(entry.epoch for entry in entries if entry.end <= limit)
        image.marks[0] = JournalMark(0, limit, journal.replicated_end, epoch, journal.seed)
        image.queues = {number: _row(number, state) for number, state in tip.states.items()}
        image.keyed = {place: KeyedRow(0, *place, value) for place, value in tip.keyed.items()}
        machine.image = image
        self.learn()
        known = self.known
        self.note.put(ReplicaNote(known.replicated, known.durable, known.epoch), journal.synced)

    def propose_starts(self) -> None:
        """Retention is looked at on every replica. What one proposes that follows must come to nothing."""
        if isinstance(self.path, FollowPath):
            for queue in self.queues.values():
                self.path.stage_start(queue, queue.high_watermark, NOW)


def _row(number: int, state: QueueState) -> QueueRow:
    return state.to_row(number, NO_SEGMENTS, 0)
