"""A broker's storage without threads or sockets: recovery, the queues, and what the splitter reports. Entries are
written through `appends`, records are read through `reads`.

The asyncio shell (broker/storage_loop/store.py) and the simulator drive the same object. Every method runs on the
owner's thread unless it says that it blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, load_checkpoint
from cairnmq.storage.checkpoint.split_report import Published, Resume, Round
from cairnmq.storage.files.damage import DamageList
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import NO_SEGMENTS, Leader, numbered
from cairnmq.storage.install.installed import Replaced, put_in_place
from cairnmq.storage.journal.directories import find_journals
from cairnmq.storage.journal.file_ranges import FileRange, epoch_starts, file_ranges
from cairnmq.storage.journal.replica_note import ReplicaNote, ReplicaNoteFile
from cairnmq.storage.live.appends import Appends
from cairnmq.storage.live.follow_path import FollowPath, JournalRole
from cairnmq.storage.live.hosting import Hosting
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Reads
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.queue.producers import live
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.queue.tail import Tail
from cairnmq.storage.recovery.clean_stop import CleanStop, was_clean, write_clean_stop
from cairnmq.storage.recovery.found_storage import FoundStorage, Tell, in_cluster
from cairnmq.storage.recovery.owner import own_nodes
from cairnmq.storage.recovery.replay import Progress, Scan, followed, live_queues, reopened
from cairnmq.storage.recovery.salvage import refuse_unfinished
from cairnmq.storage.recovery.stored_split import StoredSplit, scan_split
from cairnmq.storage.recovery.witness import Known
from cairnmq.storage.segments.segment import TXN_INDEX, left_over


class Joining(Struct, frozen=True):
    """What a start in a cluster found, before anything is changed. `stopped_as`: the broker epoch of the process
    before, if that stopped in order and all that it wrote is there; 0 otherwise. `damaged`: journals that lack bytes
    which this disk has had. `had`: of those that are not cut, up to where. `whole`: journals of which an earlier start
    said so, and that lack nothing now: somebody has restored them."""

    known: Known
    stopped_as: int
    damaged: frozenset[int]
    had: Mapping[int, int] = {}
    whole: frozenset[int] = frozenset()


class EngineConfig(Struct, frozen=True, kw_only=True):
    node_id: int = 1
    segment_bytes: int = 256 << 20
    retain_bytes: int = 0
    unsplit_bytes_max: int = 1 << 30
    unsplit_entries_max: int = 1_000_000


class Engine:
    """Made by `Engine.open`, which is recovery; in a cluster by `Engine.join`. There `keyed` has the facts of all
    hosted journals that count, at any time; on one node those that the start found."""

    def __init__(
        self,
        read_disk: Disk,
        image: CheckpointImage,
        queues: dict[int, Queue],
        paths: dict[int, JournalRole],
        keyed: dict[tuple[str, bytes], bytes],
        scans: dict[int, Scan],
        config: EngineConfig,
        epoch: int,
        hosting: Hosting | None = None,
        *,
        was_clean: bool = False,
    ) -> None:
        self.read_disk = read_disk
        self.image = image
        self.queues = queues
        self.paths = paths
        self.appends = Appends(queues, paths)
        self.keyed = keyed
        self.scans = scans
        self.config = config
        self.epoch = epoch  # of this start
        self.hosting = hosting  # None: one node, which leads all of its journals
        self.was_clean = was_clean  # the process before stopped in order, and nothing is missing of its journals
        self.epochs = {number: path.journal.epoch for number, path in paths.items()}  # under which each is led
        self.split = {number: scan.start for number, scan in scans.items()}
        self.checkpointed = dict(self.split)
        self.pack_set = PackSet(read_disk, image.packs)
        self.damages = DamageList(scan.damage for scan in scans.values() if scan.damage is not None)
        for place in self.pack_set.damages():
            self.damages.add(place)
        self.serial = image.serial  # of the checkpoint that this broker goes by
        self._resume = Resume(dict(self.split), serial=self.serial)
        # segments that a power loss may have left, all or some, until the splitter has opened the log
        self._left_over = {
            queue_id: left_over(read_disk.list(queues[queue_id].spec.directory), row.compaction.swaps)
            for queue_id, row in image.queues.items()
            if row.compaction.swaps and queue_id in queues
        }
        self.reads = Reads(read_disk, paths, self.pack_set, self._left_over)

    @classmethod
    def open(
        cls,
        journal_disk: Disk,
        read_disk: Disk,
        specs: Iterable[QueueSpec],
        *,
        journals: Collection[int] = (0,),
        begin: Callable[[Known], int],
        seed: int,
        config: EngineConfig,
        now_ms: int,
        last_epoch: int = 0,
        refuse_damage: bool = False,
        progress: Progress | None = None,
        tell: Tell | None = None,
    ) -> Engine:
        """Recovers everything the directories hold, in three steps: everything is read; `begin` decides on what was
        found, and returns the epoch of this start, under which all journals are led, and which must be higher than any
        that they have seen; then torn tails are cut and journals opened for writing. Nothing is changed here before
        `begin` returns; then `tell` hears what was found. `seed` is for a journal that has none yet. `journals` are
        hosted, and those that exist, that the checkpoint knows or that a queue belongs to. A queue is in the journal
        that its topic says, unless it has entries behind the checkpoint in another one: until the start that finds none
        there. A journal that is damaged behind it takes no writes; with `refuse_damage` that is Corrupt. `last_epoch`:
        the one given out before this start."""
        image = load_checkpoint(read_disk)
        refuse_unfinished(journal_disk, image)
        queues = live_queues(specs, image)
        homes = {queue.journal for queue in queues.values()}
        numbers = find_journals(journal_disk, {*journals, *image.marks, *homes})
        found = FoundStorage(journal_disk, read_disk, image, queues, numbers, now_ms=now_ms, progress=progress)
        if refuse_damage:
            for scan in found.damaged:
                raise Corrupt(scan.damage_text)
        found.cut_queues_short()
        epoch = begin(found.known())
        for scan in found.scans.values():
            if scan.last_epoch >= epoch:
                raise Corrupt(
                    f"epoch {epoch} is not above {scan.last_epoch}, which was in use in journal {scan.number}"
                )
        ends = found.begin(tell)
        node_id, segment_bytes = config.node_id, config.segment_bytes
        paths: dict[int, JournalRole] = {
            number: reopened(
                journal_disk, reader, scan, epoch=epoch, node_id=node_id, seed=seed, segment_bytes=segment_bytes
            )
            for number, (scan, reader) in found.journals.items()
        }
        found.done()
        is_clean = was_clean(found.stop, last_epoch, ends)
        return cls(read_disk, image, queues, paths, found.keyed, found.scans, config, epoch, was_clean=is_clean)

    @classmethod
    def join(
        cls,
        journal_disk: Disk,
        read_disk: Disk,
        specs: Iterable[QueueSpec],
        *,
        journals: Collection[int],
        floor: Callable[[int, ReplicaNote], int],
        next_queue: int,
        begin: Callable[[Joining], Leader],
        seed: int,
        config: EngineConfig,
        now_ms: int,
        has_others: Callable[[int], bool] = lambda journal: False,
        had: Callable[[int], int] = lambda journal: 0,
        given_up: Collection[int] = (),
        slots: Callable[[int], Collection[int]] = lambda journal: (),
        progress: Progress | None = None,
        tell: Tell | None = None,
    ) -> Engine:
        """The start of a broker of a cluster, in the same three steps. It hosts `journals` and follows in all of them;
        files of others are left alone. What is folded is what `floor` says of a journal's note. `begin` registers the
        broker, in the life that it returns. A journal that is damaged is cut there if it `has_others`: replicas from
        which it is copied again. Else it takes nothing. `had`: what an earlier start found that its disk had lost.
        `given_up`: somebody has accepted that, so these are cut, and damaged no more. `next_queue`: `specs` has all
        queues with smaller ids that exist. `slots`: of coordinators, in a journal. An install that is whole is put in
        place before anything is read."""
        specs = list(specs)
        installed = put_in_place(journal_disk, read_disk, _belongs(journals, specs, slots))
        image = load_checkpoint(read_disk)
        refuse_unfinished(journal_disk, image)
        queues = live_queues(specs, image)
        notes = {number: ReplicaNoteFile(journal_disk, number) for number in sorted(journals)}
        nodes = {config.node_id, *(own_nodes(journal_disk) or ())}
        rule = in_cluster(journal_disk, notes, nodes, floor, next_queue, had)
        found = FoundStorage(journal_disk, read_disk, image, queues, notes, now_ms=now_ms, progress=progress, rule=rule)
        ends = {number: scan.end for number, scan in found.scans.items()}
        is_clean = found.stop is not None and not found.damaged and found.stop.is_whole(ends)
        stopped_as = found.stop.epoch if found.stop is not None and is_clean else 0
        damaged, uncut, whole = found.lacking(has_others, had, given_up)
        member = begin(Joining(found.known(), stopped_as, damaged, uncut, whole))
        found.begin(tell)
        found.cut_damaged(notes, uncut, member.broker_epoch)
        found.cut_queues_short()
        paths = _followed(journal_disk, found, notes, member=member, seed=seed, segment_bytes=config.segment_bytes)
        found.done()
        hosting = Hosting(
            journal_disk,
            paths,
            queues,
            found.keyed,
            notes,
            member=member,
            next_queue=next_queue,
            seed=seed,
            segment_bytes=config.segment_bytes,
            installed=installed,
        )
        epoch = member.broker_epoch
        return cls(
            read_disk, image, queues, paths, found.keyed, found.scans, config, epoch, hosting, was_clean=is_clean
        )

    def end(self) -> None:
        """The last step of a stop: if nothing is in journals alone, that is noted down for the next start. In a cluster
        it is enough that all is on disk. Blocks."""
        if self.hosting is not None:
            ends = self.hosting.ends()
            if len(ends) == len(self.paths):
                reach("clean-stop")
                write_clean_stop(self.read_disk, CleanStop(self.hosting.member.broker_epoch, ends))
            return
        journals = [path.journal for path in self.paths.values()]
        is_done = all(self.checkpointed[one.number] == one.staged_end == one.synced for one in journals)
        if is_done and all(path.stopped is None for path in self.paths.values()):
            reach("clean-stop")
            write_clean_stop(self.read_disk, CleanStop(self.epoch, {one.number: one.end for one in journals}))

    # ------------------------------------------------------------------------------------------------- in a cluster

    def lead(self, journal: int, epoch: int, now_ms: int) -> WritePath | None:
        """This broker is elected. None: there are entries of queues that the metadata do not know yet, or the journal
        takes nothing. Not while anything is written."""
        assert self.hosting is not None
        return self.hosting.lead(journal, epoch, now_ms)

    def follow(self, journal: int, reason: str) -> FollowPath:
        """Another broker leads, or nobody. Not while anything is written."""
        assert self.hosting is not None
        return self.hosting.follow(journal, reason)

    def host(self, journal: int) -> FollowPath:
        """A new journal. The splitter is to be told before anything of it may be split."""
        assert self.hosting is not None
        path = self.hosting.host(journal)
        self.scans[journal] = Scan.of_nothing(journal, self.queues, self.keyed)
        self.epochs[journal] = 0
        self.split[journal] = self.checkpointed[journal] = self._resume.positions[journal] = 0
        return path

    def histories(self, journal: int) -> tuple[list[tuple[int, int]], int]:
        """Each epoch with its first position, and where the journal ends. Blocks. Where the files begin at the
        checkpoint, that tells the epoch of the entry before them, whose last byte is known to be of it."""
        held, mark = self.paths[journal].journal, self.image.marks.get(journal)
        starts = epoch_starts(held)
        if mark is not None and mark.split and held.start == mark.split and (not starts or mark.epoch < starts[0][0]):
            starts.insert(0, (mark.epoch, mark.split - 1))
        return starts, held.end

    def file_ranges(self, journal: int, position: int, max_bytes: int) -> list[FileRange]:
        """Bytes from `position` on, below the written end."""
        return file_ranges(self.paths[journal].journal, position, max_bytes)

    def note(self, journal: int, note: ReplicaNote) -> None:
        """Stores what this replica knows, as far as its disk has the journal. Blocks; on any thread, but not beside
        another one or a cut of this journal."""
        assert self.hosting is not None
        self.hosting.notes[journal].put(note, self.paths[journal].journal.synced)

    # ------------------------------------------------------------------------------------------------ the queues

    def add_queues(self, specs: Iterable[QueueSpec]) -> None:
        for spec in specs:
            self.queues[spec.queue_id] = Queue(spec, QueueState())

    def drop_queues(self, queue_ids: Iterable[int]) -> list[Queue]:
        """Their entries that are still in journals are skipped by everyone who meets them."""
        return [queue for queue_id in queue_ids if (queue := self.queues.pop(queue_id, None)) is not None]

    def configure(self, spec: QueueSpec) -> None:
        self.queues[spec.queue_id].spec = spec

    def path_of(self, queue: Queue) -> JournalRole:
        return self.paths[queue.journal]

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """A follower dates them by when it folds, which is later than its leader staged, on the same clock: so it never
        forgets one that its leader still knows."""
        for queue in self.queues.values():
            if queue.state.producers:
                queue.state.producers = live(queue.state.producers, now_ms, expiration_ms)

    # -------------------------------------------------------------------------------------- the splitter's reports

    def on_round(self, done: Round) -> None:
        path = self.paths[done.journal]
        assert self.split[done.journal] <= done.position  # invariant 1
        assert done.position <= path.splittable()
        resume = self._resume
        if done.pack:
            self.pack_set.add(done.pack)
            resume.packs.append(done.pack)
        for split in done.queues:
            queue = self.queues.get(split.queue_id)
            if queue is None:
                continue
            if split.last_segment >= 0:
                resume.segments_from[split.queue_id] = split.segments_from
                if queue.segments_from == NO_SEGMENTS:
                    queue.segments_from = split.segments_from  # promoted; only a checkpoint moves it otherwise
            queue.learn_sums(split.row_sums)
            queue.split_to(split.end)
            if queue.reader is not None:
                queue.reader.saw_segment(split.last_segment, aborted=bool(split.row_sums))
        path.unsplit_entries -= done.batches
        self.split[done.journal] = resume.positions[done.journal] = done.position

    def on_checkpoint(self, published: Published) -> None:
        """OSError says that journal segments could not be removed; all else is done, and the next one removes them."""
        self._go_by(published)
        # A checkpoint may know journals that this broker of a cluster does not host any more.
        hosted = {number: at for number, at in published.positions.items() if number in self.paths}
        for number, position in hosted.items():
            assert self.checkpointed[number] <= position <= self.split[number]  # invariant 1
            self.checkpointed[number] = position
        for number in hosted:
            reach("journal-delete")
            if self.hosting is not None:
                self.hosting.remove_segments(number, self.checkpointed[number], self.config.retain_bytes)
            else:
                self.paths[number].journal.remove_below(self.checkpointed[number] - self.config.retain_bytes)

    def _go_by(self, published: Published) -> None:
        """The only way by which this broker learns where records are that it knew elsewhere: of a checkpoint that the
        splitter reports, and of one that it finds on the read disk."""
        if self.hosting is not None:
            are_packs = not set(self.pack_set.numbers).issubset(published.packs)
            self.hosting.replaced((place.queue_id for place in published.moved), are_packs=are_packs)
        self.pack_set.replace(published.packs)
        for place in published.moved:
            if place.segments_from == NO_SEGMENTS:
                self._left_over.pop(place.queue_id, None)
            queue = self.queues.get(place.queue_id)
            if queue is not None:
                queue.lies_at(place)
        self.serial = published.serial
        self._resume = Resume(dict(self.split), serial=self.serial)

    def scan_split(self, *, is_suspect: bool = False) -> StoredSplit | None:
        """Before a successor of a splitter starts: what is on the read disk, if that is not what this broker goes by,
        or if what was split since the checkpoint may be lost (`is_suspect`). Blocks, and may run on any thread while
        there is no splitter."""
        journals = [path.journal for path in self.paths.values()]
        return scan_split(self.read_disk, journals, self.split, self.queues, self._resume, is_suspect=is_suspect)

    def unsplit(self, stored: StoredSplit) -> None:
        """Back, or on, to the checkpoint on disk: what was split since is read from the journals again, and the next
        splitter makes it anew. Only while there is no splitter."""
        tails: dict[int, Tail] = {}
        for batch in stored.found:
            self.paths[batch.journal].unsplit_entries += 1
            queue = self.queues.get(batch.queue_id)
            if queue is None:
                continue
            tail = tails.get(batch.queue_id)
            if tail is None:
                tail = tails[batch.queue_id] = Tail()
                queue.split_end = batch.offset
            tail.add(batch.offset, batch.position, batch.size, batch.timestamp)
        for queue_id, tail in tails.items():
            queue = self.queues[queue_id]
            if queue.tail is not None:
                tail.extend(queue.tail)
            queue.tail = tail
        for number, position in stored.published.positions.items():
            assert position <= self.split[number]  # rounds are reported before the checkpoint that names them
            # no journal segment is removed: a failed sync may have left this checkpoint in the cache alone
            self.split[number] = self.checkpointed[number] = position
        self._go_by(stored.published)
        for queue_id, state in stored.states.items():
            if queue_id in self.queues:
                self.queues[queue_id].recall_aborted(state.aborted)

    def repaired(self, queue_id: int, file: str) -> None:
        """The splitter has put a good file in the place of a damaged one."""
        self.damages.repaired(file)
        queue = self.queues.get(queue_id)
        if queue is not None:
            queue.reader = None
            for base in numbered([file.rpartition("/")[2]], TXN_INDEX):
                queue.row_sums = {b: known for b, known in (queue.row_sums or {}).items() if b != base}

    def resume(self) -> Resume:
        """What a successor of a splitter that died alone must know."""
        return self._resume.copy()

    def splittable(self, number: int) -> int:
        """How far the splitter may go: nothing is split before every in-sync replica has synced it."""
        return self.paths[number].splittable()

    def full(self, path: JournalRole) -> bool:
        """Producers of this journal wait while the backlog is at its cap; of one that stopped, or that this broker does
        not lead, they are refused."""
        if path.stopped is not None or not path.leads:
            return False
        journal = path.journal
        return (
            journal.staged_end - self.split[journal.number] >= self.config.unsplit_bytes_max
            or path.unsplit_entries >= self.config.unsplit_entries_max
        )

    def epoch_end(self, queue: Queue, epoch: int) -> tuple[int, int] | None:
        """None: nobody knows, since the journal is damaged where that epoch went on."""
        found = queue.state.epoch_end(epoch, self.epochs.get(queue.journal, 0), queue.end)
        return None if queue.cut_short and found[1] in (-1, queue.end) else found


def _followed(
    disk: Disk,
    found: FoundStorage,
    notes: Mapping[int, ReplicaNoteFile],
    *,
    member: Leader,
    seed: int,
    segment_bytes: int,
) -> dict[int, JournalRole]:
    """A broker of a cluster begins as a follower in all journals that it hosts."""
    return {
        number: followed(disk, reader, scan, member=member, seed=seed, segment_bytes=segment_bytes, note=notes[number])
        for number, (scan, reader) in found.journals.items()
    }


def _belongs(
    journals: Collection[int], specs: Collection[QueueSpec], slots: Callable[[int], Collection[int]]
) -> dict[int, Replaced]:
    return {each: Replaced([spec for spec in specs if spec.journal == each], slots(each)) for each in journals}
