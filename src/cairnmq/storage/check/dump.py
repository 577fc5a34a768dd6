"""`cairn dump`: any file of the data directory except meta.db (metadata/inspection.py), or of Kafka's, as text.

Bad bytes are a line with their position in the file, never an exception: one dumps a file because it is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from cairnmq.codec import kafka_files
from cairnmq.codec.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from cairnmq.codec.compression import CODEC_NAMES, CodecMissing, Undecodable
from cairnmq.codec.kafka_files import BadFile
from cairnmq.codec.records import Record, decode_batch
from cairnmq.errors import Corrupt, Fault, TooNew
from cairnmq.storage.batches.batch_scan import NoBatch, scan_batches
from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.checkpoint_frame import read_checkpoint_frame
from cairnmq.storage.files.disk import Disk, File, RealDisk
from cairnmq.storage.files.format import (
    BATCH,
    CHECKPOINT_SUFFIX,
    COMMIT,
    DURABLE_FLAG,
    ENTRY_HEAD,
    ENTRY_MAGIC,
    ENTRY_SIZE,
    FACT,
    IDENTITY_FILE,
    JOURNAL_SUFFIX,
    NEWER,
    OFFSET_INDEX_ENTRY,
    PACK_SUFFIX,
    PREVIOUS_SUFFIX,
    QUEUE_ID_BITS,
    QUEUE_ID_MAX,
    SEGMENT,
    SEGMENT_ENTRY_SIZE,
    SYNCED_FILE,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    UNKNOWN_SERIAL,
    Entry,
    QueueIdentity,
    SegmentHead,
    SyncedEnd,
    decode_fact,
    numbered,
    read_entry,
    read_segment_head,
    segment_head,
)
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.recovery.clean_stop import CLEAN_STOP
from cairnmq.storage.recovery.journal_search import CREDIT, CREDIT_PER_BYTE, find_entry
from cairnmq.storage.recovery.owner import OWNER_FILE
from cairnmq.storage.segments.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from cairnmq.storage.segments.txn_index import row_at

KINDS = {BATCH: "batch", FACT: "fact", SEGMENT: "segment"}
MARKERS = {0: "abort", 1: "commit"}  # what control records say; the others are of KRaft
ANYWHERE = 1 << 62


def dump_file(path: str, records: bool = False) -> Iterator[str]:
    """Lines of text. A file of no known kind is a Fault; a file that cannot be opened an OSError."""
    directory, _, name = path.rpartition("/")
    kind = kind_of(name)
    if kind is None:
        raise Fault(f"{path}: unknown kind of file; known are names ending in {', '.join(sorted(_DUMPERS))}")
    # The file must be there before its directory is opened: RealDisk makes directories that are missing.
    open(path, "rb").close()
    disk = RealDisk(directory or ("/" if path.startswith("/") else "."))
    file = disk.open(name)
    try:
        yield f"{name}: {kind}, {file.size()} bytes"
        yield from _DUMPERS[kind](disk, file, records)
    finally:
        file.close()


def kind_of(name: str) -> str | None:
    """The ending that names a file's kind; unfinished and deleted files carry a further one behind it."""
    for ending in (".tmp", ".new", ".deleted"):
        name = name.removesuffix(ending)
    return next((kind for kind in _DUMPERS if name.endswith(kind)), None)


# --------------------------------------------------------------------------------------------------------- journals


def _journal(disk: Disk, file: File, records: bool) -> Iterator[str]:
    base = _base(file.name)
    data = memoryview(file.read(0, file.size()))
    seed = _seed(disk, file)
    if seed is None:
        yield "at 0: BAD: no segment head can be read here or in other segments, so the CRC seed is unknown"
    at = 0
    while at < len(data):
        entry = read_entry(data, at, base + at, seed or 0)
        if isinstance(entry, Entry):
            yield f"at {at} position {base + at} {_entry(entry)} crc=ok"
            if records and entry.kind == BATCH:
                yield from _records(entry.payload)
            at = entry.end - base
            continue
        behind = _next_entry(data, at + 1, base, seed or 0)
        yield f"at {at} position {base + at} BAD: {_bad_entry(data, at, seed or 0)}; {behind - at} bytes to {behind}"
        at = behind


def _seed(disk: Disk, file: File) -> int | None:
    """From this segment's head, or from a neighbour's: all segments of a journal have the same."""
    neighbours = [f"{base:020d}{JOURNAL_SUFFIX}" for base in numbered(disk.list(""), JOURNAL_SUFFIX)]
    for name in [file.name, *(n for n in neighbours if n != file.name)]:
        other = disk.open(name)
        head = read_segment_head(other.read(0, SEGMENT_ENTRY_SIZE))
        other.close()
        if head is not None:
            return head.seed
    return None


def _entry(entry: Entry) -> str:
    text = f"{KINDS[entry.kind]} epoch={entry.epoch} queue={entry.queue_id} synced={entry.synced}{_flags(entry.flags)}"
    if entry.kind == BATCH:
        return f"{text} {_batch(read_header(entry.payload))}" if len(entry.payload) >= HEADER_SIZE else text
    if entry.kind == SEGMENT:
        head = segment_head(entry.payload)
        return f"{text} {_head(head)}" if head is not None else f"{text} payload BAD: no segment head"
    try:
        return f"{text} {decode_fact(entry.payload)!r}"
    except TooNew as error:
        return f"{text} payload BAD: {error}"


def _flags(flags: int) -> str:
    """`durable`, and the numbers of others that may be ignored."""
    others = flags & ~DURABLE_FLAG
    return f"{' durable' if flags & DURABLE_FLAG else ''}{f' flags={others:#06x}' if others else ''}"


def _head(head: SegmentHead) -> str:
    leader = head.leader
    by = f"node={leader.node_id} broker-epoch={leader.broker_epoch}" if leader is not None else "version=1"
    return f"journal={head.journal} seed={head.seed:#010x} time={head.time_ms} {by}"


def _bad_entry(data: memoryview, at: int, seed: int) -> str:
    if len(data) - at < ENTRY_SIZE:
        return "the file ends inside an entry's frame"
    magic, version, kind, length, epoch, word, synced = ENTRY_HEAD.unpack_from(data, at)
    if magic != ENTRY_MAGIC:
        return "no entry"
    queue_id, flags = word & QUEUE_ID_MAX, word >> QUEUE_ID_BITS
    claim = f"{KINDS.get(kind, kind)} version={version} length={length} epoch={epoch} queue={queue_id} synced={synced}"
    if length > len(data) - at - ENTRY_SIZE:
        return f"{claim}, but the file ends before that"
    if read_entry(data, at, 0, seed) == NEWER:
        return f"{claim} flags={flags:#06x} crc=ok: written by a newer version of CairnMQ"
    return f"{claim} crc=bad"


def _next_entry(data: memoryview, at: int, base: int, seed: int) -> int:
    """Where the next whole entry stands; nothing behind damage is aligned. The end if there is none."""
    credit = CREDIT + CREDIT_PER_BYTE * len(data)
    while True:
        # A copy under another name does not tell its position, so no claim is too large.
        at, credit = find_entry(data, at, len(data), ANYWHERE, seed, credit)
        if at < 0:
            return len(data)
        if isinstance(read_entry(data, at, base + at, seed), Entry):
            return at
        at += 1


def _synced(disk: Disk, file: File, records: bool) -> Iterator[str]:
    synced = SyncedEnd.unseal(file.read(0, file.size()))
    if synced is None:
        yield "at 0 BAD: torn, perhaps by a power loss; it is ignored then"
        return
    yield f"journal={synced.journal} epoch={synced.epoch} seed={synced.seed:#010x} position={synced.position}"


# ----------------------------------------------------------------------------------------- segments of queue logs


def _log(disk: Disk, file: File, records: bool) -> Iterator[str]:
    for found in scan_batches(file):
        if isinstance(found, NoBatch):
            yield f"at {found.position} BAD: {found.why}; {file.size() - found.position} bytes are not read"
            return
        header = found.header
        yield f"at {found.position} {_batch(header)} epoch={header.leader_epoch} crc={'ok' if found.crc_ok else 'BAD'}"
        if records and found.crc_ok:
            yield from _records(found.data)


def _batch(header: BatchHeader) -> str:
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    parts = [
        f"offsets={header.base_offset}..{header.last_offset} size={header.size}",
        f"codec={CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else codec}",
        f"time={header.base_timestamp}..{header.max_timestamp}{' append-time' if attributes & APPEND_TIME_BIT else ''}",
    ]
    if header.producer_id >= 0:
        parts.append(f"producer={header.producer_id}/{header.producer_epoch} sequence={header.base_sequence}")
    if attributes & TRANSACTIONAL_BIT:
        parts.append("transactional")
    if attributes & CONTROL_BIT:
        parts.append("control")
    return " ".join(parts)


def _records(batch: memoryview) -> Iterator[str]:
    try:
        for record in decode_batch(batch):
            headers = "".join(f" {name}={value!r}" for name, value in record.headers)
            text = f"{_marker(record)} key={record.key!r} value={record.value!r}{headers}"
            yield f"  {record.offset} time={record.timestamp}{text}"
    except (Undecodable, CodecMissing) as error:
        yield f"  records BAD: {error}"


def _marker(record: Record) -> str:
    """What a control record says: its key is a version and a type."""
    if not record.control or record.key is None:
        return ""
    kind = int.from_bytes(record.key[2:4], "big")
    return f" {MARKERS.get(kind, f'control type {kind}')}"


def _offset_index(disk: Disk, file: File, records: bool) -> Iterator[str]:
    base, before = _base(file.name), -1
    for at, data in _entries(file, OFFSET_INDEX_ENTRY.size):
        relative, position = OFFSET_INDEX_ENTRY.unpack(data)
        if at and not any(data):
            yield from _rest(file, at)
            return
        yield f"at {at} offset={base + relative} position={position}{_falls(relative, before)}"
        before = relative
    yield from _odd_end(file, OFFSET_INDEX_ENTRY.size)


def _time_index(disk: Disk, file: File, records: bool) -> Iterator[str]:
    base, before = _base(file.name), -1
    for at, data in _entries(file, TIME_INDEX_ENTRY.size):
        timestamp, relative = TIME_INDEX_ENTRY.unpack(data)
        if at and not any(data):
            yield from _rest(file, at)
            return
        yield f"at {at} time={timestamp} offset={base + relative}{_falls(timestamp, before)}"
        before = timestamp
    yield from _odd_end(file, TIME_INDEX_ENTRY.size)


def _txn_index(disk: Disk, file: File, records: bool) -> Iterator[str]:
    for at, data in _entries(file, TXN_INDEX_ENTRY.size):
        _, producer, first, last, stable = TXN_INDEX_ENTRY.unpack(data)
        bad = "" if row_at(data, 0) is not None else " BAD: no row"
        yield f"at {at} aborted producer={producer} offsets={first}..{last} last-stable={stable}{bad}"
    yield from _odd_end(file, TXN_INDEX_ENTRY.size)


def _entries(file: File, size: int) -> Iterator[tuple[int, bytes]]:
    data = file.read(0, file.size())
    for at in range(0, len(data) - size + 1, size):
        yield at, data[at : at + size]


def _falls(value: int, before: int) -> str:
    return "" if value > before else " BAD: not above the entry before"


def _rest(file: File, at: int) -> Iterator[str]:
    """Kafka makes the index of the open segment at full size and fills it up."""
    data = file.read(at, file.size() - at)
    yield f"at {at} {len(data)} bytes, {'all zero: unused' if not any(data) else 'BAD: entries after zeros'}"


def _odd_end(file: File, size: int) -> Iterator[str]:
    rest = file.size() % size
    if rest:
        yield f"at {file.size() - rest} BAD: {rest} bytes, an entry has {size}"


# --------------------------------------------------------------------------------------- checkpoints and identity


def _checkpoint(disk: Disk, file: File, records: bool) -> Iterator[str]:
    view = memoryview(file.read(0, file.size()))
    at = 0
    while at < len(view):
        try:
            frame = read_checkpoint_frame(view, at)
        except msgspec.MsgspecError as error:
            yield f"at {at} BAD: {error}; {len(view) - at} bytes are not read"
            return
        if frame is None:
            yield f"at {at} BAD: no whole frame; {len(view) - at} bytes are not read"
            return
        kind, rows, end = frame
        what = f"commit serial={rows.serial}" if kind == COMMIT else "part"
        version = view[at + 2]
        yield f"at {at} {what} version={version} time={rows.time_ms} crc=ok"
        for mark in rows.marks:
            yield f"  {mark!r}"
        for row in rows.queues:
            yield f"  {row!r}"
        if rows.gone:
            yield f"  gone {' '.join(map(str, rows.gone))}"
        if rows.unhosted:
            yield f"  journals that are gone {' '.join(map(str, rows.unhosted))}"
        for fact in rows.keyed:
            yield f"  {fact!r}"
        at = end


def _identity(disk: Disk, file: File, records: bool) -> Iterator[str]:
    try:
        yield repr(QueueIdentity.unseal(file.read(0, file.size()), file.name))
    except (Corrupt, UnicodeDecodeError) as error:
        yield f"at 0 BAD: {error}"


# ------------------------------------------------------------------------------------------- Kafka's small files


def _of_kafka(lines: Callable[[bytes], Iterator[str]]) -> Callable[[Disk, File, bool], Iterator[str]]:
    def dumper(disk: Disk, file: File, records: bool) -> Iterator[str]:
        try:
            yield from lines(file.read(0, file.size()))
        except BadFile as error:
            yield f"at 0 BAD: {error}"

    return dumper


def _properties(data: bytes) -> Iterator[str]:
    for name, value in kafka_files.read_properties(data).items():
        yield f"{name}={value}"


def _partition_metadata(data: bytes) -> Iterator[str]:
    yield from _properties(data)
    yield f"topic id {kafka_files.read_topic_id(data).hex()}"


def _offset_checkpoint(data: bytes) -> Iterator[str]:
    for place, offset in sorted(kafka_files.read_offset_checkpoint(data).items(), key=lambda row: str(row[0])):
        yield f"{place} offset={offset}"


def _leader_epochs(data: bytes) -> Iterator[str]:
    for epoch, offset in kafka_files.read_leader_epochs(data):
        yield f"epoch={epoch} offset={offset}"


def _producer_snapshot(data: bytes) -> Iterator[str]:
    for row in kafka_files.read_producer_snapshot(data):
        yield (
            f"producer={row.producer_id}/{row.epoch} sequence={row.last_sequence} offset={row.last_offset} "
            f"delta={row.offset_delta} time={row.timestamp} coordinator-epoch={row.coordinator_epoch} "
            f"transaction-from={row.txn_first_offset}"
        )


def _json(data: bytes) -> Iterator[str]:
    try:
        for name, value in msgspec.json.decode(data, type=dict[str, object]).items():
            yield f"{name}={value!r}"
    except msgspec.MsgspecError as error:
        raise BadFile(str(error)) from None


def _sealed(disk: Disk, file: File, records: bool) -> Iterator[str]:
    data = bytes(file.read(0, file.size()))
    try:
        yield from _json(data)
    except BadFile as error:
        yield f"at 0 BAD: {error}"
        return
    yield "crc=ok" if sealed_json.holds(data) else "crc BAD: the file counts for nothing"


def _pack(disk: Disk, file: File, records: bool) -> Iterator[str]:
    try:
        pack = PackReader(file, _base(file.name.rpartition("/")[2]))
    except Corrupt as error:
        yield f"at 0 BAD: {error}"
        return
    serial = str(pack.label.serial) if pack.label.serial != UNKNOWN_SERIAL else "unknown"
    yield f"at 0 pack {pack.number} after checkpoint={serial} extents={pack.count} crc=ok"
    for extent in pack:
        offsets = f"offsets={extent.base_offset}..{extent.end_offset - 1}"
        sizes = f"batches={extent.batches} size={extent.size} time=..{extent.max_timestamp}"
        yield f"at {extent.position} extent queue={extent.queue_id} {offsets} {sizes}"
        try:
            data = memoryview(pack.data(extent))
        except Corrupt as error:
            yield f"at {extent.position} BAD: {error}"
            continue
        at = 0
        while at < len(data):
            header = read_header(data, at)
            yield f"at {extent.position + at} {_batch(header)} epoch={header.leader_epoch}"
            if records:
                yield from _records(data[at : at + header.size])
            at += header.size


def _base(name: str) -> int:
    """What positions and offsets in the file count from; 0 when the name does not say."""
    number = name.partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


_DUMPERS: dict[str, Callable[[Disk, File, bool], Iterator[str]]] = {
    JOURNAL_SUFFIX: _journal,
    LOG: _log,
    TIME_INDEX: _time_index,
    TXN_INDEX: _txn_index,
    INDEX: _offset_index,
    CHECKPOINT_SUFFIX: _checkpoint,
    PREVIOUS_SUFFIX: _checkpoint,
    PACK_SUFFIX: _pack,
    IDENTITY_FILE: _identity,
    SYNCED_FILE: _synced,
    kafka_files.SNAPSHOT: _of_kafka(_producer_snapshot),
    kafka_files.METADATA_SNAPSHOT: _log,
    kafka_files.LEADER_EPOCHS: _of_kafka(_leader_epochs),
    **dict.fromkeys(kafka_files.OFFSET_CHECKPOINTS, _of_kafka(_offset_checkpoint)),
    kafka_files.PARTITION_METADATA: _of_kafka(_partition_metadata),
    kafka_files.META_PROPERTIES: _of_kafka(_properties),
    kafka_files.CLEAN_STOP: _of_kafka(_json),
    kafka_files.QUORUM_STATE: _of_kafka(_json),
    CLEAN_STOP: _sealed,
    OWNER_FILE: _sealed,
}
