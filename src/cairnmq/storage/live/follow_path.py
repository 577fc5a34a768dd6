"""The following side of one journal: a leader's bytes, appended as they are, and cut where the journals part.

Entries are folded into live state only up to the replicated end (R14), so a cut touches files and positions alone. What
lies above is folded when this broker is elected (`promoted`); a leader that is one no more goes back (`demoted`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.codec.batch import CONTROL_BIT
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import BATCH, DURABLE_FLAG, ENTRY_SIZE, FACT, Entry, Keyed, StartMoved, decode_fact
from cairnmq.storage.journal.copied_entries import runs_of, seed_of
from cairnmq.storage.journal.journal import Group, Journal, JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNoteFile
from cairnmq.storage.journal.truncation import truncate
from cairnmq.storage.live.ack_policy import DURABLE, REPLICATED
from cairnmq.storage.live.journal_fold import JournalFold
from cairnmq.storage.live.journal_path import JournalPath
from cairnmq.storage.live.led_elsewhere import LedElsewhere
from cairnmq.storage.live.queue import Queue, show_durable
from cairnmq.storage.live.unreplicated import Staged, Write, undo
from cairnmq.storage.live.write_path import WritePath

FILES_AT_ONCE = 8  # that are written, and stay open, before a sync lets them be closed
SYNC_WITHIN_MS = 500  # unless the leader asks for it
UNFOLDED_BYTES_MAX = 16 << 20  # entries that wait in memory to be folded; beyond that they are read again


class MustReopen(Fault):
    """The journal must be cut below what live state has of it: only a start goes back there."""

    def __init__(self, journal: int, reason: str) -> None:
        super().__init__(f"journal {journal} {reason}: the broker must start again")
        self.journal = journal


class Copy(Struct):
    """Whole entries of the leader on their way to the disk: a group, and its epoch, for each file they go into."""

    groups: list[tuple[Group, int]]
    entries: list[Entry]
    now_ms: int
    done: int = 0  # groups that the disk has taken

    @property
    def size(self) -> int:
        """In bytes."""
        return self.groups[-1][0].end - self.groups[0][0].start


def _own(entry: Entry) -> Entry:
    """To be folded later, when the bytes that it arrived in may be those of others. Of records only the size is asked
    then, of facts and markers the content."""
    if entry.kind != FACT and not entry.attributes & CONTROL_BIT:
        return entry
    return replace(entry, payload=memoryview(bytes(entry.payload)))


class FollowPath(LedElsewhere, JournalPath):
    """Owned by one thread, except for what only touches files: `write`, `cut`, and what `JournalPath` says.

    `note`: what is stored of this replica beside the journal; None in a simulation that keeps it itself. `opened_at`:
    where the start of the process began to fold, if that is known."""

    def __init__(
        self,
        journal: Journal,
        fold: JournalFold,
        unsplit_entries: int = 0,
        *,
        note: ReplicaNoteFile | None = None,
        opened_at: int = 0,
    ) -> None:
        super().__init__(journal, fold.waiting)
        self.unsplit_entries = unsplit_entries
        self.note = note
        self._opened_at = opened_at
        self._fold = fold
        fold.limit, fold.durable_end = journal.replicated_end, journal.durable_end
        self._unfolded: deque[Entry] = deque()
        self._unfolded_from = journal.end  # of those before it, down to the fold's position, none is in memory

    @property
    def folded_end(self) -> int:
        """The live state has everything before it, and nothing else."""
        return self._fold.position

    def splittable(self) -> int:
        return min(super().splittable(), self._fold.position)

    # --------------------------------------------------------------------------------------------------- appending

    def take(self, data: memoryview, leader_epoch: int, now_ms: int) -> Copy | None:
        """What may be written of a leader's bytes at the own end: whole entries; None if there are none. The bytes are
        looked at until `written` returns, and not later. Corrupt says
        that they cannot follow what is here."""
        journal = self.journal
        assert self.stopped is None and journal.staged_end == journal.end
        if journal.end == 0:
            journal.seed = journal.synced_file.seed = seed_of(data) or journal.seed
        runs = runs_of(
            data, journal.end, number=journal.number, seed=journal.seed, epoch=journal.epoch, leader_epoch=leader_epoch
        )
        if not runs:
            return None
        del runs[FILES_AT_ONCE:]
        groups = [(journal.stage_copied(run.view, begins=run.begins), run.epoch) for run in runs]
        return Copy(groups, [entry for run in runs for entry in run.entries], now_ms)

    def write(self, copy: Copy) -> None:
        for group, _ in copy.groups[copy.done :]:
            self.journal.write(group)
            copy.done += 1
            reach("journal-write")

    def written(self, copy: Copy) -> list[Queue]:
        """They are in the page cache. They count when the leader says so (`replicated_to`): nobody sees more yet."""
        journal = self.journal
        for group, epoch in copy.groups[: copy.done]:
            journal.written(group)
            journal.epoch = journal.synced_file.epoch = epoch
        self._unfolded.extend(_own(entry) for entry in copy.entries if entry.end <= journal.end)
        if journal.end - self._unfolded_from > UNFOLDED_BYTES_MAX:
            self._forget_unfolded(journal.end)
        self._sync_due(copy.now_ms + SYNC_WITHIN_MS)
        return []

    def failed(self, copy: Copy, reason: str) -> None:
        """The disk has taken some of the groups, or none; the rest is to be asked for again."""
        self.written(copy)
        self.journal.taken_back(copy.groups[copy.done][0])

    def stop(self, reason: str) -> None:
        """Nothing more is taken before what is written is synced; nothing of it is lost if that succeeds later."""
        self.refuse(reason)

    def _forget_unfolded(self, end: int) -> None:
        self._unfolded.clear()
        self._unfolded_from = end

    def synced_to(self, position: int) -> list[Queue]:
        """Everything before `position` is on the own disk, whatever others have. After a cut, only of a sync that began
        since."""
        self.journal.synced_to(position)
        return []

    def rewritten(self, position: int) -> list[Queue]:
        """After a failed sync, all of it is in new files, and synced."""
        self.journal.begin_segment()
        return self.synced_to(position)

    def cut(self, position: int, epoch: int, in_epoch: int) -> None:
        """Everything from `position` on goes, durably; `epoch` is that of the entry before, `in_epoch` that of the
        leader who lacks it. Blocks; not while anything is written or synced.

        Below the replicated end, live state would have to go too. Only an election among members that all lost power
        may ask for that, and then this replica starts again from its checkpoint, which lies below the durable end:
        MustReopen. What it notes before says that nothing behind the cut counts.
        OSError: it is to be cut again before anything else.
        """
        journal = self.journal
        if position < self._opened_at:
            raise Fault(
                f"journal {journal.number} cannot be cut at {position}: it is split up to {self._opened_at}; only an "
                f"install takes records out of queue logs"
            )
        if self.note is not None:
            self.note.cut(position, in_epoch)
        if position < journal.replicated_end:
            raise MustReopen(
                journal.number, f"cannot be cut at {position}: it is replicated up to {journal.replicated_end}"
            )
        self._forget_unfolded(position)
        truncate(journal, position)
        journal.epoch = journal.synced_file.epoch = epoch

    # ------------------------------------------------------------------------------------------------------ folding

    def replicated_to(self, position: int, durable_end: int, now_ms: int) -> list[Queue]:
        """What the leader says is replicated, and durable; of what is here. Returns queues that have more to show."""
        journal, fold = self.journal, self._fold
        journal.replicated_end = fold.limit = max(journal.replicated_end, min(position, journal.end))
        fold.durable_end = max(journal.durable_end, min(durable_end, journal.replicated_end))
        journal.durable_end = fold.durable_end
        return [*show_durable(self.waiting, journal.durable_end), *self._fold_on(now_ms)]

    def knows_queues(self, next_queue: int, now_ms: int) -> list[Queue]:
        """The metadata have given out all queue ids below this one, so entries of others there are deleted queues."""
        self._fold.next_queue = max(self._fold.next_queue, next_queue)
        return self._fold_on(now_ms)

    def _fold_on(self, now_ms: int) -> list[Queue]:
        fold, before = self._fold, self._fold.batches
        advanced = []
        for entry in self._entries():
            if not fold.takes(entry):
                break
            queue = fold.add(entry, now_ms)
            if queue is not None:
                advanced.append(queue)
        while self._unfolded and self._unfolded[0].end <= fold.position:
            self._unfolded.popleft()
        self._unfolded_from = max(self._unfolded_from, fold.position)
        self.unsplit_entries += fold.batches - before
        for gap in fold.gaps.values():
            raise gap
        return advanced

    def _entries(self) -> Iterator[Entry]:
        """Those that are not folded, in order."""
        at, limit, journal = self._fold.position, self._unfolded_from, self.journal
        if at < limit:
            reader = JournalReader(journal.disk, journal.number)
            reader.seed = journal.seed
            try:
                for entry in reader.entries(at, limit):
                    at = entry.end
                    yield entry
            finally:
                reader.close()
            if at < limit:
                raise Corrupt(f"journal {journal.number}: position {at} was written and cannot be read")
        yield from self._unfolded

    # ------------------------------------------------------------------------------------------ changing the sides

    def promoted(self, epoch: int, now_ms: int) -> WritePath | None:
        """This broker is elected: what lies above the replicated end is folded, so that it can be undone, and the new
        epoch begins with the head of a segment, which is to be written at once. None: some of it is of queues that the
        metadata do not know yet (`knows_queues`). Not while anything is written."""
        journal, fold = self.journal, self._fold
        above = list(self._entries())
        if self.stopped is not None or any(entry.queue_id >= fold.next_queue for entry in above):
            return None
        assert fold.position == journal.replicated_end
        write = Write(Group(fold.position, journal.end, [], False), [], [], None, [])
        try:
            for entry in above:
                _stage_again(write, entry, fold.queues.get(entry.queue_id), now_ms)
        except Fault:
            undo([write])
            raise
        return WritePath.elected(
            journal,
            epoch,
            fold.keyed,
            self.waiting,
            unsplit_entries=self.unsplit_entries,
            unreplicated=write,
            now_ms=now_ms,
        )


def _stage_again(write: Write, entry: Entry, queue: Queue | None, now_ms: int) -> None:
    """As the leader did that wrote it: the state has it, nobody sees it."""
    if entry.kind == FACT:
        fact = decode_fact(entry.payload)
        if isinstance(fact, Keyed):
            write.facts.append((None, fact, entry.end))
        elif queue is not None and isinstance(fact, StartMoved) and fact.offset > queue.state.end:
            write.opened.append((queue, fact.offset, entry.end))
            queue.state.end = fact.offset
        elif queue is not None:
            write.facts.append((queue, fact, entry.end))
    elif entry.kind == BATCH and queue is None:
        write.deleted.append(entry.end)
    elif entry.kind == BATCH and queue is not None:
        write.staged.append(_batch_staged_again(queue, entry, now_ms))


def _batch_staged_again(queue: Queue, entry: Entry, now_ms: int) -> Staged:
    state, pid = queue.state, entry.producer_id
    known = state.producers.get(pid)
    epochs_before = state.epochs.copy() if not state.epochs or state.epochs[-1][0] != entry.leader_epoch else None
    state.follow(entry, queue.topic, queue.partition, now_ms)
    if known is not None and known.txn_start >= 0 and entry.attributes & CONTROL_BIT:
        state.ends(known.txn_start, entry.last_offset)
    return Staged(
        queue,
        entry.base_offset,
        entry.last_offset + 1,
        entry.position + ENTRY_SIZE,
        len(entry.payload),
        entry.max_timestamp,
        DURABLE if entry.flags & DURABLE_FLAG else REPLICATED,
        pid,
        known,
        epochs_before,
    )


JournalRole: TypeAlias = WritePath | FollowPath


def demoted(
    path: WritePath, queues: Mapping[int, Queue], next_queue: int, reason: str, note: ReplicaNoteFile | None = None
) -> FollowPath:
    """Another broker leads: live state goes back to the replicated end, and what is written above it may be cut. Not
    while a write is under way."""
    assert path.keyed is not None
    was_stopped, journal = path.stopped, path.journal
    path.step_down(reason)
    fold = JournalFold(journal.number, queues, path.keyed, journal.replicated_end, path.waiting, next_queue=next_queue)
    follows = FollowPath(journal, fold, path.unsplit_entries, note=note)
    follows.sync_by_ms, follows.stopped = path.sync_by_ms, was_stopped
    return follows
