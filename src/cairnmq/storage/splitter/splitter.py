"""The splitter: journal bytes, sorted by queue, into packs and queue logs; then the checkpoint that makes it count.

Order is the whole argument: nothing is split before it is synced in the journal; nothing is checkpointed before it is
synced on the read disk; nothing is deleted before a checkpoint says that it may be. So after a crash everything behind
the checkpoint can be thrown away and split again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, CheckpointLog
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace, QueueSplit, Resume, Round
from cairnmq.storage.files.buffers import Slab
from cairnmq.storage.files.damage import Damage, Place, place_of
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.failed_sync import doubt_name, noting_doubt
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import (
    BATCH,
    FACT,
    NO_SEGMENTS,
    PACKS,
    QUEUES,
    Aborted,
    CheckpointRows,
    Entry,
    JournalMark,
    Keyed,
    PackLabel,
    StartMoved,
    decode_fact,
    pack_name,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.packs.pack import PackWriter
from cairnmq.storage.packs.pack_set import PackShelf
from cairnmq.storage.packs.spare_packs import SparePacks
from cairnmq.storage.queue.producers import live
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.open_logs import OPEN_FILES_MAX, OpenLogs
from cairnmq.storage.segments.queue_log import QueueLog, read_identity, retire_directory, stranger_in
from cairnmq.storage.segments.segment import LOG, find_offset, segment_name, sound_walk
from cairnmq.storage.segments.txn_index import read_rows
from cairnmq.storage.splitter.placement import Thresholds, wants_segments
from cairnmq.storage.splitter.segment_replacement import LeftBehind, Swaps
from cairnmq.storage.splitter.split_queue import SplitQueue, claim

ROUND_BYTES = 16 << 20
READ_SLACK = 1 << 20  # a round ends with a whole entry inside the one chunk that was read
LEARNED_AT_ONCE = 1000  # queues in one question and its answer
ABORTED_BYTES = 40 << 10  # what an aborted transaction in packs weighs: each is a row of every checkpoint, and memory
SPOILED = "a sync of the read disk failed: what was split since the checkpoint is split again"

Resolve = Callable[[list[int]], list[QueueSpec]]  # specs of those ids that exist; the others are deleted queues


class Unreported(Fault):
    """The checkpoint on disk is not the one that the broker goes by: before any splitter begins behind it, the broker
    has to (`Engine.unsplit`)."""


class Splitter:
    """Synchronous; one owner. A successor of a splitter that died alone calls `replay` first."""

    def __init__(
        self,
        journal_disk: Disk,
        read_disk: Disk,
        image: CheckpointImage,
        resolve: Resolve,
        *,
        journals: Iterable[int],
        resume: Resume | None = None,
        round_bytes: int = ROUND_BYTES,
        producer_expiration_ms: int = 86_400_000,
        thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        if resume is not None and resume.serial != image.serial:
            raise Unreported(
                f"the broker goes by checkpoint {resume.serial}, and {image.serial} is on the read disk: it was "
                f"published, and not reported"
            )
        self.journal_disk = journal_disk
        self.read_disk = read_disk
        self.checkpoints = CheckpointLog(read_disk, image)
        self.resolve = resolve
        self.round_bytes = round_bytes
        self.slab = Slab(round_bytes + READ_SLACK)
        self.producer_expiration_ms = producer_expiration_ms
        self.thresholds = thresholds
        self.positions = {number: mark.split for number, mark in image.marks.items()}
        for number in journals:
            self.positions.setdefault(number, 0)
        self.checkpointed = dict(self.positions)
        self.readers: dict[int, JournalReader] = {}
        self.queues: dict[int, SplitQueue] = {}
        self._gone: set[int] = set()  # deleted queues; their entries are skipped
        self._forgotten: list[int] = []  # deleted since the last checkpoint
        self._keyed: dict[tuple[str, bytes], bytes | None] = {}
        self._watermarks: dict[int, int] = {}
        self._epochs = {number: mark.epoch for number, mark in image.marks.items()}
        self._open_logs = OpenLogs(open_files_max)
        self._retired: list[str] = []
        self._resume = resume or Resume(serial=image.serial)
        self.spares = SparePacks(read_disk, self._counted_packs())
        if self.spares.numbers:
            self.checkpoints.settle()
        if not self.spares.are_wanted:
            self.spares.remove()
        self.shelf = PackShelf(read_disk, self._counted_packs())
        self.next_pack = max([0, *self.shelf.numbers, *self.spares.numbers]) + 1
        self._new_packs: list[File] = []  # written since the last checkpoint
        self._merges: list[tuple[list[int], int | None]] = []  # packs replaced by one (or none) since then
        self._demoted: list[int] = []
        self.damages: list[tuple[int, Place]] = []  # found in queue logs; whoever drives the splitter takes them
        # queues with segments of their own
        self.segmented = sum(row.segments_from != NO_SEGMENTS for row in image.queues.values())
        self._left: set[int] = set()  # demoted, but their old directory may still be read
        self._unseen: list[LeftBehind] = []
        self.swaps = Swaps(self.queues)
        self.written: set[int] = set()  # compacted queues that upkeep should look at
        # why nothing may be split or checkpointed before the broker starts again
        self.spoiled = SPOILED if read_disk.exists(doubt_name("")) else None

    # -------------------------------------------------------------------------------------------------- rounds

    def _counted_packs(self) -> list[int]:
        """Those of the checkpoint and those read already."""
        known = self.checkpoints.image.packs
        return [*known, *(number for number in self._resume.packs if number not in known)]

    def replay(self, now_ms: int) -> None:
        """Folds entries up to where a predecessor had split and said so, without writing.

        The death of a process loses nothing that it wrote; only what it had not reported is cut and made again.
        """
        for journal, position in self._resume.positions.items():
            reader = self._reader(journal)
            # all of them first: for a question about each, as it comes, the broker would be asked very often
            self._meet(reader.entries(self.positions[journal], position))
            for entry in reader.entries(self.positions[journal], position):
                self._fold(journal, entry, now_ms)
                self.positions[journal] = entry.end
            if self.positions[journal] != position:
                raise Corrupt(f"journal {journal} cannot be read up to {position}, which was split before")
        for queue_id, segments_from in self._resume.segments_from.items():
            queue = self.queues.get(queue_id)
            if queue is not None:
                queue.segments_from = segments_from
        for queue in self.queues.values():
            if queue.segments_from != NO_SEGMENTS:  # the predecessor has written them to its segments
                queue.state.forget_aborted(queue.segments_from, queue.state.end)
        self._find_left()
        # so that the next checkpoint syncs what the predecessor wrote
        for queue in self.queues.values():
            if queue.dirty and queue.log is None and queue.segments_from != NO_SEGMENTS:
                self.open_log(queue, queue.state.end)
        self._new_packs.extend(self.read_disk.open(pack_name(number), write=True) for number in self._resume.packs)

    def _find_left(self) -> None:
        """Directories of queues that the predecessor demoted: it may not have lived to say so."""
        for name in self.read_disk.list(QUEUES):
            identity = read_identity(self.read_disk, f"{QUEUES}/{name}")
            queue = self.learn(identity.queue_id) if identity is not None else None
            if queue is not None and queue.segments_from == NO_SEGMENTS and queue.spec.directory == f"{QUEUES}/{name}":
                self.leave(queue)

    def resume(self) -> Resume:
        """What a successor of this splitter would need now."""
        return self._resume.copy()

    def split(self, journal: int, limit: int, now_ms: int) -> Round | None:
        """One round towards `limit` = min(high watermark, synced end). None when there is nothing to do."""
        self._refuse_if_spoiled()
        start = self.positions[journal]
        if start >= limit:
            return None
        reader = self._reader(journal)
        entries: list[Entry] = []
        position = start
        for entry in reader.entries(start, limit, self.round_bytes + READ_SLACK, self.slab):
            entries.append(entry)
            position = entry.end
            if position - start >= self.round_bytes:
                break
        if not entries:
            raise Corrupt(
                f"journal {journal} is damaged at position {start}: bytes below the synced end {limit} do not read back"
            )
        self._meet(entries)
        touched: dict[int, list[Entry]] = {}
        batches = 0
        for entry in entries:
            if entry.kind != BATCH:
                self._fold(journal, entry, now_ms)
                continue
            batches += 1
            if self._fold_batch(entry, now_ms):
                run = touched.get(entry.queue_id)
                if run is None:
                    touched[entry.queue_id] = [entry]
                else:
                    run.append(entry)
        self._epochs[journal] = entries[-1].epoch
        done, pack = self._store(touched)
        reach("split-round")
        if pack:
            self._resume.packs.append(pack)
        self._resume.segments_from.update({s.queue_id: s.segments_from for s in done if s.last_segment >= 0})
        self.positions[journal] = self._resume.positions[journal] = position
        self._watermarks[journal] = max(limit, position)
        return Round(journal, position, batches, done, pack)

    def _store(self, touched: dict[int, list[Entry]]) -> tuple[list[QueueSplit], int]:
        """Each queue's batches into its segments, those of all others into one new pack."""
        done: list[QueueSplit] = []
        packed: list[int] = []
        for queue_id, batches in touched.items():
            queue = self.queues[queue_id]
            if queue.segments_from == NO_SEGMENTS:
                size = sum(len(batch.payload) for batch in batches)
                weight = queue.packed_bytes + ABORTED_BYTES * len(queue.state.aborted)
                if queue_id in self._left or not wants_segments(
                    queue.spec.config.model, size, weight, self.segmented, self.thresholds
                ):
                    queue.packed_bytes += size
                    packed.append(queue_id)
                    continue
                queue.segments_from = batches[0].base_offset
                queue.packed_bytes = 0
                self.segmented += 1
            done.append(self._append(queue, batches))
        if not packed:
            return done, 0
        pack = self._write_pack((queue_id, touched[queue_id]) for queue_id in sorted(packed))
        done.extend(QueueSplit(queue_id, self.queues[queue_id].state.end, NO_SEGMENTS, -1) for queue_id in packed)
        return done, pack

    def _write_pack(self, runs: Iterable[tuple[int, Sequence[Entry]]]) -> int:
        writer = PackWriter(self.read_disk, self.take_label())
        try:
            for queue_id, batches in runs:
                writer.add_batches(queue_id, batches)
            writer.finish()
        except OSError:
            writer.abandon()
            raise
        self.shelf.add(writer.number)
        self._new_packs.append(writer.file)
        return writer.number

    def _reader(self, journal: int) -> JournalReader:
        """Looks at the names for every round: a write that failed may have left a file that is longer than its part,
        and then only the next one's name tells where that part ends."""
        reader = self.readers.get(journal)
        if reader is None:
            reader = self.readers[journal] = JournalReader(self.journal_disk, journal)
        else:
            reader.refresh()
        return reader

    def _meet(self, entries: Iterable[Entry]) -> None:
        """Asks for the specs of queues not met before; an id nobody knows is a deleted queue."""
        unknown = sorted({e.queue_id for e in entries if e.queue_id and e.queue_id not in self.queues} - self._gone)
        for first in range(0, len(unknown), LEARNED_AT_ONCE):
            self._learn(unknown[first : first + LEARNED_AT_ONCE])

    def _learn(self, queue_ids: list[int]) -> None:
        found = {spec.queue_id: spec for spec in self.resolve(queue_ids)}
        for queue_id in queue_ids:
            spec = found.get(queue_id)
            if spec is None:
                self._gone.add(queue_id)
                if queue_id in self.checkpoints.image.queues:
                    self._forgotten.append(queue_id)
                continue
            self.queues[queue_id] = SplitQueue(spec, self.checkpoints.image.queues.get(queue_id))

    def _fold(self, journal: int, entry: Entry, now_ms: int) -> None:
        self._epochs[journal] = entry.epoch
        if entry.kind == BATCH:
            self._fold_batch(entry, now_ms)
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                self._keyed[fact.space, fact.key] = fact.value
            elif isinstance(fact, StartMoved):
                queue = self.queues.get(entry.queue_id)
                if queue is not None:
                    queue.state.move_start(fact.offset)
                    queue.dirty = True

    def _fold_batch(self, entry: Entry, now_ms: int) -> bool:
        """False: the queue is deleted."""
        queue = self.queues.get(entry.queue_id)
        if queue is None:
            return False
        queue.state.follow(entry, queue.spec.topic, queue.spec.partition, now_ms)
        queue.dirty = True
        return True

    def open_log(self, queue: SplitQueue, offset: int) -> QueueLog:
        """Cuts what lies at `offset` and behind, and removes what a crash left below the checkpointed log start."""
        self.checkpoints.settle()
        row = self.checkpoints.image.queues.get(queue.spec.queue_id)
        log = QueueLog(self.read_disk, queue.spec)
        if queue.log is None:
            self.swaps.opened(queue, log)
        # what is to come before the first segment is not part of the log yet
        ahead = {swap[0] for swap in queue.compaction.swaps if swap[0] < queue.segments_from}
        split = queue.spec.queue_id in self._resume.segments_from
        log.open_at(
            offset,
            claim(row, queue.segments_from),
            queue.compaction.superseded | ahead,
            split=split,
            epoch=self.epoch,
        )
        log.check_aborted(queue.row_sums)
        queue.log, queue.row_sums = log, log.row_sums
        self.damages.extend((queue.spec.queue_id, place) for place in log.damages)
        if row is not None:
            log.remove_below(row.log_start)
            if log.bases and row.log_start >= max(row.end, offset):
                log.remove_last()
        self._open_logs.hold(queue.spec.queue_id, log)
        return log

    def _append(self, queue: SplitQueue, batches: list[Entry]) -> QueueSplit:
        queue_id = queue.spec.queue_id
        log = queue.log or self.open_log(queue, batches[0].base_offset)
        aborted = queue.state.take_aborted(batches[0].base_offset)
        log.append(batches, aborted)
        self._open_logs.hold(queue_id, log)
        sums = log.sums_from(aborted[0].last) if aborted else ()
        return QueueSplit(queue_id, queue.state.end, queue.segments_from, log.bases[-1], sums)

    def stored(self, queue: SplitQueue, end: int | None = None) -> Iterator[Entry]:
        """The batches of a queue's segments from its log start on, or of those before the segment that begins at `end`,
        as journal entries of them."""
        log = queue.log or self.open_log(queue, queue.state.end)
        expected, end = max(queue.state.log_start, queue.segments_from), queue.state.end if end is None else end
        for index, base in enumerate(base for base in log.bases if base < end):
            file = self.read_disk.open(segment_name(log.directory, base, LOG))
            first = find_offset(self.read_disk, log.directory, base, file, max(base, expected))
            limit = log.bases[index + 1] if index + 1 < len(log.bases) else queue.state.end
            places = sound_walk(self.read_disk, log.directory, base, file, first, limit) if first is not None else ()
            for place in places:
                expected = place.last_offset + 1
                data = memoryview(file.read(place.position, place.size))
                offsets = place.base_offset, place.last_offset
                yield Entry.of_stored(queue.spec.queue_id, data, offsets, place.max_timestamp)
            file.close()
        if expected < end:
            raise Damage(Place(log.directory, -1, queue.spec.directory, expected, end))

    def stored_aborted(self, queue: SplitQueue) -> list[Aborted]:
        """As the `.txnindex` files of its segments say; damage is raised."""
        log = queue.log or self.open_log(queue, queue.state.end)
        rows = (row for base in log.bases for row in read_rows(self.read_disk, log.directory, base, log.row_sums))
        return [row for row in rows if row.last >= queue.state.log_start]

    def _is_whole(self, queue: SplitQueue) -> bool:
        """Nothing of its segments is damaged or missing."""
        try:
            self.stored_aborted(queue)
            return sum(1 for _ in self.stored(queue)) >= 0
        except (Damage, Unreadable) as error:
            self.note_damage(queue.spec, error)
            return False

    def note_damage(self, spec: QueueSpec, error: Corrupt | Unreadable) -> None:
        name = f"{spec.topic}-{spec.partition}"
        place = Place(spec.directory, -1, name)
        if isinstance(error, Damage | Unreadable):
            place = place_of(error, name)
        self.damages.append((spec.queue_id, place))

    def _refuse_if_spoiled(self) -> None:
        if self.spoiled is not None:
            raise Fault(self.spoiled)

    # ---------------------------------------------------------------------------------------------- checkpoints

    def checkpoint(self, now_ms: int, *, expiry_ms: int | None = None, clean: bool = False) -> Published:
        """Syncs the read disk, then publishes. `expiry_ms`: by which time producers are too old, if not by `now_ms`."""
        swapped = self.swaps.into_rows()
        dirty = [queue for queue in self.queues.values() if queue.dirty]
        files, closed = list(self._new_packs), list[str]()
        directories: dict[str, None] = dict.fromkeys([*swapped, *([PACKS, ""] if files or self._merges else [])])
        for queue in dirty:
            if queue.log is not None:
                more, others, names = queue.log.sync_parts()
                files.extend(more)
                closed.extend(others)
                directories.update(dict.fromkeys(names))
        self._refuse_if_spoiled()
        reach("checkpoint-sync")
        for part in self._open_logs.parts(self.read_disk, files, closed, list(directories)):
            self._sync(*part)
        aged_ms = now_ms if expiry_ms is None else expiry_ms
        for queue in dirty:
            queue.state.producers = live(queue.state.producers, aged_ms, self.producer_expiration_ms)
        rows = CheckpointRows(
            queues=[queue.to_row() for queue in dirty],
            gone=self._forgotten,
            keyed=[Keyed(space, key, value) for (space, key), value in self._keyed.items()],
            marks=[self._mark(number) for number in self.positions],
            time_ms=now_ms,
            clean=clean,
            packs=self._shelved() if files or self._merges else None,
        )
        reach("checkpoint-publish")
        self.checkpoints.publish(rows)
        for queue in dirty:
            queue.dirty = False
            if queue.log is not None:
                queue.log.synced()
        self.swaps.published()
        self.written.update(queue.spec.queue_id for queue in dirty if queue.spec.config.compact)
        published = self._published()
        self._keyed.clear()
        self._forgotten = []
        self.checkpointed = dict(self.positions)
        reach("checkpoint-report")
        self._delete_below_start(dirty)
        for directory in self._retired:
            self.read_disk.remove_tree(directory)
        self._retired.clear()
        # Last of all: whoever goes on after a failure in here has to ask the broker which checkpoint that goes by.
        self._resume = Resume(dict(self.positions), serial=published.serial)
        return published

    def _sync(self, files: Sequence[File], directories: Sequence[str]) -> None:
        try:
            with noting_doubt(self.read_disk, ""):
                self.read_disk.sync_files(files, directories)
        except OSError as error:
            # What was split since the last checkpoint may be gone although it reads well. A later sync would not tell;
            # the next start cuts it and splits it again.
            self.spoiled = f"{SPOILED} ({error})"
            raise

    def _shelved(self) -> list[int]:
        """The packs that count once merges do."""
        numbers = self.shelf.numbers
        for inputs, output in self._merges:
            at = numbers.index(inputs[0])
            numbers[at : at + len(inputs)] = [output] if output is not None else []
        return numbers

    def _published(self) -> Published:
        """Of replaced packs and demoted queues, the files stay until the readers have gone over to the new ones."""
        serial = self.checkpoints.image.serial
        left = [number for inputs, _ in self._merges for number in inputs]
        swapped = self.swaps.tell()
        self._unseen.append((serial, left, self._demoted, swapped))
        self.shelf.replace(self._shelved())
        ids = dict.fromkeys([*self._demoted, *(queue_id for queue_id, _ in swapped)])
        moved = [QueuePlace.of(queue.to_row()) for queue_id in ids if (queue := self.queues.get(queue_id))]
        self._new_packs, self._merges, self._demoted = [], [], []
        return Published(serial, dict(self.positions), self.shelf.numbers, moved)

    def seen(self, serial: int) -> None:
        """The readers go by this checkpoint: what it and those before it left behind can go."""
        while self._unseen and self._unseen[0][0] <= serial:
            _, packs, demoted, swapped = self._unseen.pop(0)
            for number in packs:
                self.read_disk.remove(pack_name(number))
            for queue_id in demoted:
                queue = self.queues.get(queue_id)
                self._left.discard(queue_id)
                if queue is None or stranger_in(self.read_disk, queue.spec.directory, queue_id):
                    continue
                if self.read_disk.list(queue.spec.directory):
                    self.read_disk.remove_tree(retire_directory(self.read_disk, queue.spec.directory, queue_id))
            self.swaps.seen(swapped)

    def _mark(self, journal: int) -> JournalMark:
        reader = self.readers.get(journal)
        old = self.checkpoints.image.marks.get(journal)
        seed = reader.find_seed() if reader is not None else old.seed if old is not None else 0
        position = self.positions[journal]
        # It never falls: of a journal that has lost its end, the mark may be the only witness that there was one.
        watermark = max(self._watermarks.get(journal, 0), position, old.high_watermark if old is not None else 0)
        return JournalMark(journal, position, watermark, self._epochs.get(journal, 0), seed)

    @property
    def epoch(self) -> int:
        return max(self._epochs.values(), default=0)

    @property
    def uncheckpointed(self) -> bool:
        changes = self._forgotten or self._merges or self._demoted or self.swaps
        return bool(changes) or self.positions != self.checkpointed

    # ------------------------------------------------------------------------------------ retention and deletion

    def _delete_below_start(self, queues: Iterable[SplitQueue]) -> None:
        """Files go only now: the checkpoint that was just published holds the moved log starts."""
        for queue in queues:
            if queue.state.log_start <= queue.checkpointed_start:
                continue
            queue.checkpointed_start = queue.state.log_start
            if queue.segments_from == NO_SEGMENTS:
                continue  # a merge leaves them behind
            log = queue.log or self.open_log(queue, queue.state.end)
            reach("retention-delete")
            log.remove_below(queue.state.log_start)
            if log.bases and queue.state.log_start >= queue.state.end:
                log.remove_last()

    def take_label(self) -> PackLabel:
        """For a new pack. It says that there is a checkpoint with this serial, so that one must be durable."""
        self.checkpoints.settle()
        self.next_pack += 1
        return PackLabel(self.next_pack - 1, self.checkpoints.image.serial)

    @property
    def has_merge(self) -> bool:
        return bool(self._merges)

    def replaced(self, inputs: list[int], output: int | None) -> None:
        """A merge is done; it counts from the next checkpoint on. `inputs` are neighbours on the shelf."""
        self._merges.append((inputs, output))

    def demote(self, queues: list[SplitQueue]) -> None:
        """Puts what their segments hold into a pack; that counts from the next checkpoint on, which must follow
        before the next round."""
        queues = [queue for queue in queues if self._is_whole(queue) and not self._is_in_packs_too(queue)]
        if not queues:
            return
        in_order = sorted(queues, key=lambda queue: queue.spec.queue_id)
        runs = ((queue.spec.queue_id, list(self.stored(queue))) for queue in in_order)
        self._write_pack((queue_id, run) for queue_id, run in runs if run)
        for queue in queues:
            queue.state.add_aborted(self.stored_aborted(queue))
            queue.log = None
            self._open_logs.forget(queue.spec.queue_id)
            queue.segments_from, queue.row_sums = NO_SEGMENTS, {}
            queue.packed_bytes = 0
            queue.dirty = True
            self.segmented -= 1
            self.leave(queue)

    def _is_in_packs_too(self, queue: SplitQueue) -> bool:
        """Packs hold records that segments hold as well (`prepend`), until a merge leaves them behind."""
        start = max(queue.state.log_start, queue.segments_from)
        return any(extent.end_offset > start for _, extent in self.shelf.extents(queue.spec.queue_id))

    def leave(self, queue: SplitQueue) -> None:
        """The directory of a demoted queue goes when nobody reads it any more."""
        if queue.spec.queue_id not in self._left:
            self._left.add(queue.spec.queue_id)
            self._demoted.append(queue.spec.queue_id)

    def drop(self, queues: Iterable[tuple[int, str]]) -> None:
        """Topic deletion, (queue id, directory) each: directories are renamed now, removed after a checkpoint."""
        for queue_id, directory in queues:
            self._gone.add(queue_id)
            queue = self.queues.pop(queue_id, None)
            row = self.checkpoints.image.queues.get(queue_id)
            if row is not None:
                self._forgotten.append(queue_id)
            known = queue or row
            self.segmented -= known is not None and known.segments_from != NO_SEGMENTS
            self._open_logs.forget(queue_id)
            if not directory:
                continue
            identity = read_identity(self.read_disk, directory)  # without one, whoever claims the directory retires it
            if identity is not None and identity.queue_id == queue_id:
                self._retired.append(retire_directory(self.read_disk, directory, queue_id))

    def configure(self, spec: QueueSpec) -> None:
        queue = self.queues.get(spec.queue_id)
        if queue is not None:
            queue.spec = spec
            self.written.add(spec.queue_id)
            if queue.log is not None:
                queue.log.spec = spec

    def learn(self, queue_id: int) -> SplitQueue | None:
        """None: the queue is deleted."""
        if queue_id not in self.queues and queue_id not in self._gone:
            self._learn([queue_id])
        return self.queues.get(queue_id)

    def close(self) -> None:
        for queue in self.queues.values():
            if queue.log is not None:
                queue.log.close_file()
        for reader in self.readers.values():
            reader.close()
        self.checkpoints.close()
