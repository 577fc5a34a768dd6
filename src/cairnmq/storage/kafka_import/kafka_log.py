"""One partition of an Apache Kafka log directory, read for import: checked as a whole first, then given in order.

Nothing is guessed: what Kafka itself would cut is cut with a note, anything else that is wrong is an error with file
and position. Offsets are kept, so records that must not be seen leave a gap instead of a shift.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, read_header
from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.codec.records import Record, decode_batch
from cairnmq.errors import Fault
from cairnmq.storage.batches.batch_scan import NoBatch, StoredBatch, scan_batches
from cairnmq.storage.batches.markers import ABORT, COMMIT
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import digits, numbered
from cairnmq.storage.segments.segment import LOG, segment_name
from cairnmq.types import TopicPartition

_SAME_FROM = 16  # what lies before, base offset and leader epoch, is ours; the rest of a batch is kept
OFFSETS_PER_SEGMENT = 0x7FFFFFFF  # behind the one in its name; Kafka's indexes hold no more
DAMAGED = "the log is damaged. Restore it from another replica, or do not import the topic"
UNFINISHED = (".swap", ".cleaned")  # of a compaction that a crash interrupted


class Unimportable(Fault):
    """A log that cannot be imported as it is; the text says which, where and what to do."""


class KafkaLog(Struct):
    """What a check of all segments found. Offsets from `opens_at` to `end` are imported; `start` is Kafka's log start,
    which may lie inside the first batch."""

    place: TopicPartition
    disk: Disk
    directory: str  # on that disk
    root: str  # the same, for messages
    bases: list[int]
    start: int
    opens_at: int
    end: int
    batches: int = 0
    records: int = 0
    size: int = 0
    # producer id -> first and last offset of each transaction whose records nobody may see, in order
    aborted: dict[int, list[tuple[int, int]]] = {}
    notes: list[str] = []

    def read(self, offset: int) -> Iterator[StoredBatch]:
        """Batches to import from `offset` on: no gaps are filled, aborted records are left out."""
        for index, base in enumerate(self.bases):
            if index + 1 < len(self.bases) and self.bases[index + 1] <= offset:
                continue
            for batch in scan(self.disk, self.directory, base):
                if isinstance(batch, NoBatch) or batch.header.base_offset >= self.end:
                    return
                if batch.header.last_offset >= max(offset, self.start) and not self._is_aborted(batch.header):
                    yield batch

    def decoded(self, offset: int) -> Iterator[Record]:
        """The records to import from `offset` on, decoded, without those that end transactions."""
        for batch in self.read(offset):
            yield from data_records(self.root, batch)

    def goes_on_at(self, log_start: int, end: int, last: memoryview | None) -> int:
        """Where an import into a partition from `log_start` to `end` goes on; `last` is the batch before its end.

        A partition that holds anything but the first part of this log is refused.
        """
        if end == 0:
            return self.opens_at
        refused = f"{self.place} is not empty: it holds offsets {log_start} to {end}"
        if end > self.end or log_start < self.opens_at:
            raise Unimportable(f"{refused}, and the log to import {self.opens_at} to {self.end}")
        if last is None:
            if log_start == end and end in (self.opens_at, self.end):
                return end
            raise Unimportable(f"{refused}, all of them deleted; delete the topic, and the import creates it again")
        header = read_header(last)
        same = next(self.read(header.base_offset), None)
        if same is not None and same.header.base_offset <= header.last_offset:
            if same.header.base_offset != header.base_offset or same.data[_SAME_FROM:] != last[_SAME_FROM:]:
                raise Unimportable(f"{refused}, and its last batch is not the one that {self.root} has there")
        elif header.count or header.producer_id >= 0:
            raise Unimportable(f"{refused}, and at {header.base_offset} a record that {self.root} does not have")
        return end

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not is_transaction_data(header):
            return False
        spans = self.aborted.get(header.producer_id, [])
        index = bisect_right(spans, (header.base_offset, self.end)) - 1
        return index >= 0 and header.base_offset <= spans[index][1]


def is_transaction_data(header: BatchHeader) -> bool:
    return bool(header.attributes & TRANSACTIONAL_BIT) and not header.attributes & CONTROL_BIT


def check_log(
    place: TopicPartition,
    disk: Disk,
    directory: str,
    root: str,
    *,
    log_start: int,
    recovery_point: int,
    clean: bool,
    abort_open: bool,
) -> KafkaLog:
    """Reads every byte. `log_start` and `recovery_point` are what the checkpoints say, 0 if nothing; `clean` that Kafka
    was stopped in order; `root` the name of the directory for messages."""
    names = disk.list(directory)
    bases = numbered(names, LOG)
    if not bases:
        raise Unimportable(f"{root}: no segment files (NUMBER{LOG})")
    for name in names:
        if name.endswith(UNFINISHED):
            raise Unimportable(
                f"{root}/{name}: a compaction was interrupted; let Kafka start and stop once, it then finishes it"
            )
    start = max(log_start, bases[0])
    while len(bases) > 1 and bases[1] <= start:
        bases.pop(0)
    found = KafkaLog(place, disk, directory, root, bases, start, start, max(start, bases[-1]))
    check = _Check(found, clean=clean, recovery_point=recovery_point)
    check.run()
    check.end_transactions(abort_open)
    return found


class _Check:
    """One pass over all batches."""

    def __init__(self, log: KafkaLog, *, clean: bool, recovery_point: int) -> None:
        self.log = log
        self.clean = clean
        self.recovery_point = recovery_point
        self.open: dict[int, int] = {}  # producer id -> first offset of its transaction
        self.written: dict[int, int] = {}  # producer id -> records of its transaction
        self.next = log.bases[0]

    def run(self) -> None:
        log = self.log
        is_first = True
        for index, base in enumerate(log.bases):
            path = f"{log.root}/{digits(base, LOG)}"
            if base < self.next:
                raise Unimportable(f"{path}: starts at {base}, but the segment before it ends at {self.next - 1}")
            self.next = base
            for found in scan(log.disk, log.directory, base):
                wrong = _wrong(found, self.next)
                if wrong is not None:
                    self._cut(path, found, wrong, is_last=index + 1 == len(log.bases))
                    return
                assert isinstance(found, StoredBatch)
                header = found.header
                if header.last_offset - base > OFFSETS_PER_SEGMENT:
                    # A batch's CRC does not cover its offset. Kafka would not cut this, so neither do we.
                    raise Unimportable(
                        f"{path} at {found.position}: offset {header.last_offset} is too far from {base}; {DAMAGED}"
                    )
                self.next = header.last_offset + 1
                if self.next <= log.start:
                    continue
                if is_first:
                    log.opens_at, is_first = min(log.start, header.base_offset), False
                self._count(path, found)
        log.end = max(log.end, self.next)

    def _cut(self, path: str, found: StoredBatch | NoBatch, wrong: str, *, is_last: bool) -> None:
        """As Kafka: behind the recovery point of a broker that was killed lies what was never flushed."""
        place = f"{path} at {found.position}: {wrong}"
        if isinstance(found, NoBatch) and found.is_old_format:
            raise Unimportable(f"{place}; formats before Kafka 0.11 are not read: have Kafka 3 write the topic again")
        if not is_last or self.clean or self.next < self.recovery_point:
            raise Unimportable(f"{place}; {DAMAGED}")
        self.log.notes.append(f"{place}; the rest was never flushed and is not imported; Kafka would drop it too")
        self.log.end = max(self.log.start, self.next)

    def _count(self, path: str, batch: StoredBatch) -> None:
        header, log = batch.header, self.log
        log.batches += 1
        log.size += header.size
        if header.attributes & CONTROL_BIT:
            self._marker(path, batch)
            return
        log.records += header.count
        if header.attributes & TRANSACTIONAL_BIT:
            self.open.setdefault(header.producer_id, header.base_offset)
            self.written[header.producer_id] = self.written.get(header.producer_id, 0) + header.count

    def _abort(self, producer_id: int, first: int, last: int) -> None:
        log = self.log
        log.aborted.setdefault(producer_id, []).append((first, last))
        log.records -= self.written.pop(producer_id, 0)

    def _marker(self, path: str, batch: StoredBatch) -> None:
        try:
            keys = [record.key or b"" for record in decode_batch(batch.data, check_crc=False)]
        except (Undecodable, CodecMissing) as error:
            raise Unimportable(f"{path} at {batch.position}: {error}") from None
        for key in keys:
            kind, pid = int.from_bytes(key[2:4], "big"), batch.header.producer_id
            if kind in (ABORT, COMMIT):
                first = self.open.pop(pid, None)
                if kind == ABORT and first is not None:
                    self._abort(pid, first, batch.header.base_offset)
                self.written.pop(pid, None)

    def end_transactions(self, abort_open: bool) -> None:
        log = self.log
        for pid, first in sorted(self.open.items(), key=lambda item: item[1]):
            if not abort_open:
                raise Unimportable(
                    f"{log.root}: the transaction of producer {pid} at offset {first} did not complete. End it in "
                    f"Kafka, or use --abort-open-transactions to drop its records"
                )
            self._abort(pid, first, log.end)
        if log.aborted:
            text = f"{sum(map(len, log.aborted.values()))} aborted transactions"
            log.notes.append(f"{log.root}: {text}; their records are dropped, their offsets are kept")


def _wrong(found: StoredBatch | NoBatch, expected: int) -> str | None:
    if isinstance(found, NoBatch):
        return found.why
    if not found.crc_ok:
        return f"the CRC of the batch at offset {found.header.base_offset} does not match"
    if found.header.base_offset < expected:
        return f"offset {found.header.base_offset}, but {expected} or later is expected"
    if not 0 <= found.header.count <= found.header.last_offset_delta + 1:
        return f"{found.header.count} records, last offset delta {found.header.last_offset_delta}"
    return None


def scan(disk: Disk, directory: str, base: int) -> Iterator[StoredBatch | NoBatch]:
    """All batches of the segment of that name."""
    file = disk.open(segment_name(directory, base, LOG))
    try:
        yield from scan_batches(file)
    finally:
        file.close()


def data_records(root: str, batch: StoredBatch | NoBatch) -> Iterator[Record]:
    if isinstance(batch, NoBatch):
        raise Unimportable(f"{root} at {batch.position}: {batch.why}")
    if not batch.crc_ok:
        raise Unimportable(f"{root} at {batch.position}: the CRC of the batch does not match")
    if batch.header.attributes & CONTROL_BIT:
        return
    try:
        yield from decode_batch(batch.data)
    except (Undecodable, CodecMissing) as error:
        raise Unimportable(f"{root} at {batch.position}: {error}") from None
