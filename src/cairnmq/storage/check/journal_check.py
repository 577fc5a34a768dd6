"""verify's part for one journal: every entry read, its order and claims checked, what is not split yet remembered."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cairnmq.codec.batch import HEADER_SIZE, read_header
from cairnmq.errors import TooNew
from cairnmq.storage.check.finding import Finding, note
from cairnmq.storage.check.replica import replicated_end
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import (
    BATCH,
    ENTRY_SIZE,
    FACT,
    SEGMENT,
    Entry,
    JournalMark,
    Keyed,
    StartMoved,
    decode_fact,
    journal_segment,
    segment_head,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import read_replica_note, replica_name
from cairnmq.storage.recovery.journal_search import look_behind
from cairnmq.storage.recovery.witness import KEY, SPACE, Seen


class Run(Struct):
    """Batches of one queue whose offsets follow one another in one journal."""

    start: int
    end: int
    journal: int
    position: int


class Unsplit(Struct, frozen=True, gc=False):
    """A batch behind the split position: its queue log may hold a copy, which then must be the same."""

    offset: int
    reader: JournalReader
    position: int
    size: int

    def read(self) -> bytes:
        return bytes(self.reader.read(self.position, self.size)[0])


class JournalCheck:
    """`findings` walks the journal once; the fields are filled when it has ended."""

    def __init__(
        self, disk: Disk, number: int, mark: JournalMark | None, root: str, *, in_cluster: bool = False
    ) -> None:
        """`in_cluster`: known otherwise than by a replica's note, which a young journal has not got yet."""
        self.number = number
        self.mark = mark
        self.root = root
        self.reader = JournalReader(disk, number)
        self.end = 0
        self.damaged = False
        self.seen = Seen()
        self.runs: dict[int, list[Run]] = {}
        self.split_ends: dict[int, int] = {}  # queue -> offset behind its last batch below the split position
        self.unsplit: dict[int, list[Unsplit]] = {}
        self.starts: dict[int, int] = {}  # queue -> furthest log start below the split position
        self.opened: dict[int, int] = {}  # queue -> log start behind the split position, before its first batch there
        self.keyed: dict[tuple[str, bytes], bytes | None] = {}  # latest values below the split position
        self._split = mark.split if mark is not None else 0
        self._split_seen = self._split == 0
        self._epoch = self._synced = 0
        self._leader: int | None = None
        self._is_copied = in_cluster or disk.exists(replica_name(number))

    def _without_segments(self, place: str, split: int) -> Iterator[Finding]:
        known = self.reader.synced_end()
        if split > 0 and self._is_copied and known <= split:
            self.end = split  # as after an install; the next start copies on from there
            yield note(place, f"no segments; the journal continues at position {split}, where the checkpoint is")
        elif split > 0:
            self.damaged = True
            yield Finding(place, f"no segments, but the checkpoint is at position {split}")
        elif known:
            self.damaged = True
            yield Finding(place, f"no segments, but everything up to {known} was synced")

    def findings(self) -> Iterator[Finding]:
        reader, split = self.reader, self._split
        place = f"{self.root}/{self.number}"
        if self.mark is not None and self.mark.seed:
            reader.seed = self.mark.seed
        if not reader.bases:
            yield from self._without_segments(place, split)
            return
        if reader.bases[0] > split:
            text = f"starts at {reader.bases[0]}, after the checkpoint's split position {split}"
            if self._look_behind(split) <= split:
                # Names of files that were never synced may land in any order too.
                yield note(place, f"{text}; nothing after it was synced")
                return
            self.damaged = True
            yield Finding(place, f"{text}; if no file of it was lost, `cairn repair DIR` rebuilds the checkpoint")
        position, limit = reader.bases[0], reader.end()
        self._split_seen = self._split_seen or position == split
        while position < limit:
            for entry in reader.entries(position, limit):
                if entry.epoch < self._epoch:
                    break
                yield from self._entry(entry)
                position = entry.end
            self.end = self.end if self.damaged else position
            if position >= limit:
                break
            if reader.is_newer_at(position):
                self.damaged = True
                text = f"written by a newer version of CairnMQ from journal position {position} on, or damaged"
                yield Finding(self._file(position), text)
                break
            claim = self._look_behind(position) if position >= split else 0
            if position >= split and claim <= position:
                left = f"{limit - position} bytes at the end were never synced; the next start truncates them"
                yield note(self._file(position), left)
                break
            following = min((base for base in reader.bases if base > position), default=limit)
            if following <= split and self._ends_at(position):
                # Deletions are not synced: after a power loss any of them may be undone.
                yield note(self._file(position), "was deleted below the checkpoint and came back")
                for seen in (self.runs, self.split_ends, self.starts, self.keyed):
                    seen.clear()
            else:
                self.damaged = True
                yield Finding(self._file(position), self._why_damage(position, claim))
            position = following
        yield from self._against_mark(place)

    def _look_behind(self, position: int) -> int:
        """Up to where everything was synced. What a replica claimed before it was cut is not about what is here now."""
        cut_in = read_replica_note(self.reader.disk, self.number).cut_in
        return look_behind(self.reader, position, lambda epoch: epoch > cut_in).synced

    def _ends_at(self, position: int) -> bool:
        base = max(base for base in self.reader.bases if base <= position)
        return base + self.reader.file(base).size() == position

    def _why_damage(self, position: int, claim: int) -> str:
        what = f"damaged at journal position {position}"
        if position < self._split:
            return f"{what}, below the checkpoint's split position {self._split}"
        return f"{what}; everything up to {claim} was synced"

    def _against_mark(self, place: str) -> Iterator[Finding]:
        """And against the file `synced`."""
        if self.damaged:
            return
        known = max(replicated_end(self.reader.disk, self.number, self.mark), self.reader.synced_end())
        if self.end < self._split:
            lost = "" if known > self._split else "; all of that is in queue logs, and the next start continues there"
            if self.reader.is_older_than(self._split):
                lost = "; it is an older copy, and what was written after the checkpoint is lost"
            yield Finding(place, f"ends at {self.end}, before the checkpoint's split position {self._split}{lost}")
        elif not self._split_seen:
            yield Finding(place, f"the checkpoint's split position {self._split} lies inside an entry")
        if max(self.end, self._split) < known:
            yield Finding(self._file(self.end), f"ends at {self.end}; everything up to {known} was synced")

    def _entry(self, entry: Entry) -> Iterator[Finding]:
        file = self._file(entry.position)
        is_first = entry.position in self.reader.bases
        if is_first and self._is_copied:
            self._epoch = self._epoch or entry.epoch  # a follower's file that goes on where it was stopped or cut
        elif is_first != (entry.kind == SEGMENT):
            yield Finding(file, f"{'no segment head' if is_first else 'a segment head'} at position {entry.position}")
        if entry.kind == SEGMENT:
            yield from self._head(entry, file)
        elif entry.epoch != self._epoch:
            yield Finding(file, f"epoch {entry.epoch} at position {entry.position}; its segment has {self._epoch}")
        if not self._synced <= entry.synced <= entry.position:
            text = f"the entry at position {entry.position} has synced end {entry.synced}"
            yield Finding(file, f"{text}; it must be from {self._synced} to {entry.position}")
        self._epoch = entry.epoch
        self._synced = max(self._synced, entry.synced)
        self.seen.add(entry.epoch, entry.queue_id, entry.producer_id)
        self._split_seen = self._split_seen or self._split in (entry.position, entry.end)
        if entry.kind == BATCH:
            yield from self._batch(entry, file)
        elif entry.kind == FACT:
            yield from self._fact(entry, file)

    def _head(self, entry: Entry, file: str) -> Iterator[Finding]:
        head = segment_head(entry.payload)
        if head is None:
            yield Finding(file, f"the segment head at position {entry.position} has {len(entry.payload)} bytes")
            return
        if head.journal != self.number:
            yield Finding(file, f"belongs to journal {head.journal}")
        if head.seed != self.reader.find_seed():
            yield Finding(file, f"has CRC seed {head.seed:#x}; the journal has {self.reader.find_seed():#x}")
        if head.leader is not None and self._leader not in (None, head.leader.node_id):
            self._synced = 0  # what another one claims is about another disk
        self._leader = head.leader.node_id if head.leader is not None else self._leader

    def _batch(self, entry: Entry, file: str) -> Iterator[Finding]:
        if len(entry.payload) < HEADER_SIZE:
            yield Finding(file, f"the batch at position {entry.position} is shorter than a batch header")
            return
        header = read_header(entry.payload)
        if header.leader_epoch != entry.epoch:
            text = f"the batch at position {entry.position} has leader epoch {header.leader_epoch}"
            yield Finding(file, f"{text}, its entry {entry.epoch}")
        queue_id, start, end = entry.queue_id, header.base_offset, header.last_offset + 1
        runs = self.runs.setdefault(queue_id, [])
        if runs and runs[-1].end == start:
            runs[-1].end = end
        else:
            runs.append(Run(start, end, self.number, entry.position))
        if entry.position < self._split:
            self.split_ends[queue_id] = end
        else:
            place = Unsplit(start, self.reader, entry.position + ENTRY_SIZE, len(entry.payload))
            self.unsplit.setdefault(queue_id, []).append(place)

    def _fact(self, entry: Entry, file: str) -> Iterator[Finding]:
        try:
            fact = decode_fact(entry.payload)
        except TooNew as error:
            yield Finding(file, f"the fact at position {entry.position} cannot be read: {error}")
            return
        if isinstance(fact, Keyed) and (fact.space, fact.key) == (SPACE, KEY):
            self.seen.add_fact(fact.value)
        if entry.position >= self._split:
            if isinstance(fact, StartMoved) and entry.queue_id not in self.unsplit:
                self.opened[entry.queue_id] = max(fact.offset, self.opened.get(entry.queue_id, 0))
            return
        if isinstance(fact, StartMoved):
            self.starts[entry.queue_id] = max(fact.offset, self.starts.get(entry.queue_id, 0))
        elif isinstance(fact, Keyed):
            self.keyed[fact.space, fact.key] = fact.value

    def _file(self, position: int) -> str:
        base = max((base for base in self.reader.bases if base <= position), default=self.reader.bases[0])
        return f"{self.root}/{journal_segment(self.number, base)}"

    def close(self) -> None:
        self.reader.close()
