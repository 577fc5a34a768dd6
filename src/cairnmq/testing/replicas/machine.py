"""A machine of the simulation: what its disk holds, and what a power loss leaves of it."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

from msgspec import Struct

from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.history import EpochHistory


class ModelEntry(Struct, frozen=True, gc=False):
    """An entry of a journal. Payload 0 is the head of an epoch's first segment."""

    epoch: int
    start: int
    end: int
    payload: int


class ModelJournal:
    """One replica's journal: entries, how many of them are synced, and the ends that its checkpoint knows. The judge
    remembers entries below `first`, the disk does not. `staged`: an
    install that is whole, as the entries below its position."""

    def __init__(self) -> None:
        self.entries: list[ModelEntry] = []
        self.synced = 0
        self.known = KnownEnds()  # in the last checkpoint
        self.first = 0
        self.split = 0
        self.checkpointed = 0
        self.keep_from = 0  # as the leader told last
        self.staged: list[ModelEntry] | None = None

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return self.entries[-1].end if self.entries else 0

    def history(self) -> EpochHistory:
        """As recovery finds it: of the files. Where they begin at the checkpoint, that tells the epoch before them."""
        history = EpochHistory()
        before = [entry for entry in self.entries if entry.end <= self.first == self.checkpointed]
        if before:  # where the files begin at the checkpoint, that tells the epoch before them
            history.begin(before[-1].epoch, self.first - 1)
            history.extend(self.first)
        for entry in self.entries[self._index(self.first) :]:
            history.begin(entry.epoch, entry.start)
            history.extend(entry.end)
        return history

    def append(self, entry: ModelEntry) -> None:
        """Written, not synced."""
        assert entry.start == self.end, (entry, self.end)
        self.entries.append(entry)

    def cut(self, to: int) -> None:
        """Durable at once: see `cairnmq.replication.follower.Cut`."""
        assert to >= self.split, "a cut of what is in queue logs"
        while self.entries and self.entries[-1].end > to:
            assert self.entries[-1].start >= to, "a cut within an entry"
            self.entries.pop()
        self.synced = min(self.synced, to)
        self.known = self.known.cut(to)

    def after(self, position: int, count: int) -> list[ModelEntry]:
        """Some entries from a position on."""
        assert position >= self.first, "the journal does not go back so far"
        at = self._index(position)
        return self.entries[at : at + count]

    def _index(self, position: int) -> int:
        return bisect_left(self.entries, position, key=lambda entry: entry.start)

    def remove_below(self, position: int, segment_bytes: int) -> None:
        """Whole files before the one that holds the byte before this position. Each epoch begins a file."""
        before = 0
        for entry in self.entries[self._index(self.first) :]:
            if entry.start >= position:
                break
            if entry.payload == 0 or entry.start // segment_bytes != before:
                self.first = entry.start
            before = entry.start // segment_bytes

    def lose_power(self, random: Random) -> None:
        """Any beginning that has all that was synced may be left."""
        kept = sum(entry.end <= self.synced for entry in self.entries)
        del self.entries[random.randint(kept, len(self.entries)) :]

    def recover(self) -> None:
        """An install that is whole is put in place. Recovery syncs what it found, and splits again what no checkpoint
        knows."""
        if self.staged is not None:
            self.entries, self.staged, self.known = self.staged, None, KnownEnds()
            self.first = self.checkpointed = self.end
        self.synced = self.end
        self.split = self.checkpointed

    def retain(self, first: int, split: int) -> None:
        """More is in queue logs, and so less in the journal."""
        self.split = self.checkpointed = max(self.checkpointed, split)
        self.first = max(self.first, min(first, self.split))

    def lose_journal(self) -> None:
        """Its disk; queue logs are on another one."""
        self.entries = [entry for entry in self.entries if entry.end <= self.checkpointed]
        self.first, self.known, self.synced, self.staged = self.checkpointed, KnownEnds(), self.end, None

    def lose_queue_logs(self) -> None:
        """What is left of the journal means nothing without them, unless all of it is there."""
        self.staged = None
        if self.first:
            self.entries, self.known = [], KnownEnds()
        self.first = self.split = self.checkpointed = 0
        self.synced = self.end


class Machine:
    """Disks that outlive processes. `clean` is the clean-stop marker: the life that wrote it."""

    def __init__(self, broker: int, journals: list[int]) -> None:
        self.broker = broker
        self.journals = {number: ModelJournal() for number in journals}
        self.clean = 0
        self.damaged: set[int] = set()
