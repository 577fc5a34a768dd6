"""What must be true of storage, said without storage's own code: a model of the journals and the ack table's promises.

A journal is a list of entries in order. Whatever happens to a machine, what is found afterwards is a beginning of that
list: at least everything that was promised to survive this event, and nothing that was never handed to the disk. From
that list alone follow each queue's records, log start, epochs and producers, and the keyed facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from cairnmq.codec.batch import CONTROL_BIT, empty_batch, read_header, set_offset_and_epoch
from cairnmq.storage.files.format import BATCH, FACT, Entry, Keyed, StartMoved, decode_fact, read_entry

KEPT_PER_PRODUCER = 5
SERIAL_DIGITS = 8
KILL, POWER = "kill", "power loss"


class Violation(AssertionError):
    """Storage broke a promise."""


def demand(met: bool, *what: object) -> None:
    if not met:
        raise Violation(" ".join(map(str, what)))


class QueueModel:
    """One queue as its entries define it."""

    __slots__ = ("log_start", "end", "epochs", "producers", "batches", "serials")

    def __init__(self) -> None:
        self.log_start = 0
        self.end = 0
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[int, tuple[int, tuple[tuple[int, int, int], ...]]] = {}
        self.batches: list[tuple[int, int, bytes]] = []
        self.serials: dict[int, int] = {}  # producer -> serial number of its last batch

    def copy(self) -> QueueModel:
        copied = QueueModel()
        copied.log_start, copied.end = self.log_start, self.end
        copied.epochs, copied.producers = self.epochs.copy(), self.producers.copy()
        copied.batches, copied.serials = self.batches.copy(), self.serials.copy()
        return copied

    def add(self, data: bytes, where: str) -> None:
        header = read_header(data)
        demand(header.base_offset == self.end, where, "offset", header.base_offset, "follows", self.end)
        self.end = header.last_offset + 1
        self.batches.append((header.base_offset, self.end, data))
        if not self.epochs or self.epochs[-1][0] != header.leader_epoch:
            demand(not self.epochs or self.epochs[-1][0] < header.leader_epoch, where, "the leader epoch falls")
            if self.epochs and self.epochs[-1][1] == header.base_offset:
                self.epochs.pop()  # an epoch without a record
            self.epochs.append((header.leader_epoch, header.base_offset))
        pid = header.producer_id
        if pid >= 0:
            epoch, kept = self.producers.get(pid, (header.producer_epoch, ()))
            demand(header.producer_epoch >= epoch, where, "producer", pid, "goes back to epoch", header.producer_epoch)
            if header.attributes & CONTROL_BIT:  # the end of a transaction, which may raise the epoch
                self.producers[pid] = (header.producer_epoch, kept if header.producer_epoch == epoch else ())
                return
            last = (header.base_sequence + header.count - 1) % 2**31
            batch = (header.base_sequence, last, header.base_offset)
            kept = kept if header.producer_epoch == epoch else ()
            self.producers[pid] = (header.producer_epoch, (*kept, batch)[-KEPT_PER_PRODUCER:])
            # In a new epoch a producer repeats what it had no answer for, whether that was stored or not.
            before = self.serials.get(pid, -1) if header.producer_epoch == epoch else -1
            serial = serial_of(data)
            demand(before < serial, where, "producer", pid, "batch", serial, "twice or out of order")
            self.serials[pid] = serial

    def add_gap(self, end: int, epoch: int, timestamp: int, where: str) -> None:
        """Offsets that an import brings without records, up to `end`."""
        if self.end < end:
            batch = empty_batch(self.end, end - 1, timestamp)
            set_offset_and_epoch(batch, self.end, epoch)
            self.add(bytes(batch), where)

    def move_start(self, offset: int) -> None:
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.end = max(self.end, offset)  # of an import: a log whose first records are gone begins there
        before = [epoch for epoch, start in self.epochs if start <= offset]
        behind = [(epoch, start) for epoch, start in self.epochs if start > offset]
        self.epochs = ([(before[-1], offset)] if before else []) + behind

    def readable(self) -> Iterator[tuple[int, int, bytes]]:
        """Batches that hold records at or behind the log start."""
        return (batch for batch in self.batches if batch[1] > self.log_start)


def serial_of(data: bytes) -> int:
    """The simulator's producers number their batches, in the last bytes of the last value, before its header count."""
    return -1 if read_header(data).attributes & CONTROL_BIT else int(data[-1 - SERIAL_DIGITS : -1])


def batch_key(data: bytes) -> tuple[int, int, int]:
    """Which batch it is, wherever it is stored."""
    header = read_header(data)
    return header.producer_id, header.producer_epoch, serial_of(data) if header.count else 0


class Fold:
    """The state that a run of entries gives."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueModel] = {}
        self.keyed: dict[tuple[str, bytes], bytes] = {}
        self.epoch = 0

    def copy(self) -> Fold:
        copied = Fold()
        copied.queues = {queue_id: queue.copy() for queue_id, queue in self.queues.items()}
        copied.keyed = self.keyed.copy()
        copied.epoch = self.epoch
        return copied

    def add(self, entry: Entry) -> None:
        demand(entry.epoch >= self.epoch, "position", entry.position, "the journal's epoch falls")
        self.epoch = entry.epoch
        if entry.kind == BATCH:
            queue = self.queues.setdefault(entry.queue_id, QueueModel())
            queue.add(bytes(entry.payload), f"queue {entry.queue_id}, position {entry.position}:")
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, StartMoved):
                self.queues.setdefault(entry.queue_id, QueueModel()).move_start(fact.offset)
            elif isinstance(fact, Keyed):
                if fact.value is None:
                    self.keyed.pop((fact.space, fact.key), None)
                else:
                    self.keyed[fact.space, fact.key] = fact.value


class Promise(Struct, frozen=True):
    """Written at `time`; from `due` on a power loss may not take it."""

    end: int
    due: int


class JournalModel:
    """One journal: entries handed to the disk, and how many of them each event must leave."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: list[Entry] = []  # behind `settled_end`
        self.settled = Fold()
        self.settled_end = 0
        self.handed = 0
        self.written = 0
        self.durable = 0  # promised to survive a power loss
        self.promises: list[Promise] = []
        # Groups that failed and were taken back. Their clients were told so; their bytes may still turn up.
        self.ghosts: list[list[Entry]] = []

    def hand(self, entries: list[Entry]) -> None:
        """A group goes to the disk now."""
        demand(not entries or entries[0].position == self.handed, "journal", self.number, "leaves a gap")
        self.entries.extend(entries)
        self.handed = entries[-1].end

    def wrote(self) -> None:
        self.written = self.handed

    def took_back(self) -> None:
        ghosts = [entry for entry in self.entries if entry.position >= self.written]
        self.entries = [entry for entry in self.entries if entry.position < self.written]
        if ghosts:
            self.ghosts.append(ghosts)
        self.handed = self.written

    def promise_by(self, end: int, due: int) -> None:
        self.promises.append(Promise(end, due))

    def promised(self, event: str, now_ms: int) -> int:
        """The position up to which everything must survive."""
        if event == KILL:
            return max(self.written, self.durable)
        due = [promise.end for promise in self.promises if promise.due < now_ms]
        return max([self.durable, *due])

    def promise(self, end: int) -> None:
        """Everything before `end` survives any event from now on."""
        demand(end <= self.written, "journal", self.number, "calls", end, "durable, but", self.written, "is written")
        if end <= self.durable:
            return
        self.durable = end
        self.promises = [promise for promise in self.promises if promise.end > end]
        count = 0
        for entry in self.entries:
            if entry.end > end:
                break
            self.settled.add(entry)
            self.settled_end = entry.end
            count += 1
        del self.entries[:count]
        self.ghosts = [ghost for ghost in self.ghosts if ghost[0].position >= end]

    def tip(self) -> Fold:
        fold = self.settled.copy()
        for entry in self.entries:
            fold.add(entry)
        return fold

    def survivors(self, found: Iterable[Entry], end: int, promised: int, event: str) -> list[Entry]:
        """Checks what a recovery kept: `found` are the entries behind `settled_end`, ending at `end`."""
        demand(
            end >= promised,
            "journal",
            self.number,
            "kept only",
            end,
            "of",
            promised,
            "bytes promised to survive",
            event,
        )
        demand(end <= self.handed or bool(self.ghosts), "journal", self.number, "holds more than was ever written")
        lines = [self.entries, *(self._with(ghost) for ghost in self.ghosts)]
        kept: list[Entry] = []
        position = self.settled_end
        for index, entry in enumerate(found):
            demand(entry.position == position, "journal", self.number, "has a gap at", position)
            position = entry.end
            lines = [line for line in lines if index < len(line) and same(line[index], entry)]
            demand(bool(lines), "journal", self.number, "holds an entry nobody wrote at", entry.position)
            kept.append(lines[0][index])
        demand(position == end, "journal", self.number, "reads back to", position, "but was recovered to", end)
        return kept

    def _with(self, ghost: list[Entry]) -> list[Entry]:
        return [entry for entry in self.entries if entry.position < ghost[0].position] + ghost

    def restarted(self, kept: list[Entry], end: int) -> JournalModel:
        """The journal of a world that goes on after a recovery kept these entries; all of them are synced now."""
        after = JournalModel(self.number)
        after.settled = self.settled.copy()
        for entry in kept:
            after.settled.add(entry)
        after.settled_end = after.handed = after.written = after.durable = end
        return after


def same(one: Entry, other: Entry) -> bool:
    return (
        one.position == other.position
        and one.kind == other.kind
        and one.queue_id == other.queue_id
        and one.epoch == other.epoch
        and one.payload == other.payload
    )


def entries_of(data: bytes, position: int, seed: int) -> list[Entry]:
    """The entries of a group's bytes."""
    entries, at, view = [], 0, memoryview(data)
    while at < len(data):
        entry = read_entry(view, at, position + at, seed)
        if not isinstance(entry, Entry):
            raise Violation(f"position {position + at}: a group holds what is no entry ({entry})")
        entries.append(entry)
        at = entry.end - position
    return entries
