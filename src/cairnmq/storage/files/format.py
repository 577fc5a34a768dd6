"""Every byte CairnMQ puts on a disk: entry frames, checkpoint frames, index entries, names. Text: docs/format.md.

Kafka's batch layout is in codec/batch.py, because clients speak it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Layout
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from cairnmq.codec.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt, TooNew
from cairnmq.types import Buffer

FORMAT = 2  # of the directories as a whole, in `owner.json`; an older version must not open a higher one

# ---------------------------------------------------------------------------------------------- journal entries

ENTRY_MAGIC = 0xCA1A
ENTRY_VERSION = 2  # version 1 is the same without flags, and is read as ever
FIRST_VERSION = 1
BATCH = 1  # payload: one Kafka batch of one queue
FACT = 2  # payload: one msgpack fact about a queue, or about a key
SEGMENT = 3  # payload: SEGMENT_HEAD; the first entry of every segment file

# magic version kind length epoch flags-and-queue-id synced_end | crc follows
ENTRY_HEAD = Layout(">HBBIIQQ")
ENTRY_CRC = Layout(">I")
ENTRY_SIZE = ENTRY_HEAD.size + ENTRY_CRC.size  # 32 bytes before the payload
# journal number, CRC seed, creation time in ms; then the leader: node id, broker epoch
SEGMENT_HEAD_1 = Layout(">IIQ")
SEGMENT_HEAD = Layout(">IIQIQ")
ENTRY_LENGTH_MAX = 1 << 30

QUEUE_ID_BITS = 48  # of the eight bytes; the flags are above them
QUEUE_ID_MAX = (1 << QUEUE_ID_BITS) - 1
# Flags. The low eight bits are required: who does not know one of them refuses the entry. The others may be ignored.
DURABLE_FLAG = 1  # counts, for readers and coordinators, when it is on disk
UNKNOWN_REQUIRED = 0xFF & ~DURABLE_FLAG

_ENTRY_VERSION = Layout(">HB")
BATCH_LENGTH = Layout(">i")
_BATCH_CRC = Layout(">I")

INCOMPLETE = "incomplete"  # the buffer ends before the entry does
BAD = "bad"  # these bytes are no entry
NEWER = "newer"  # a whole entry, with a required flag that this version does not know


class Entry(Struct, frozen=True, gc=False):
    """One whole, verified journal entry. `position` is that of the frame; the payload lies ENTRY_SIZE behind it.

    Of a batch, the header's fields are read too: whoever walks a journal needs them, and each look at it costs.
    """

    position: int
    end: int
    kind: int
    epoch: int
    queue_id: int
    synced: int
    payload: memoryview
    base_offset: int = -1
    last_offset: int = -1
    leader_epoch: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int = 0
    attributes: int = 0
    flags: int = 0

    @classmethod
    def of_stored(cls, queue_id: int, batch: memoryview, offsets: tuple[int, int], max_timestamp: int) -> Entry:
        """A batch that is in no journal. `offsets`: its first and its last."""
        return cls(0, 0, BATCH, 0, queue_id, 0, batch, *offsets, max_timestamp=max_timestamp)


class Leader(NamedTuple):
    """Who writes a journal: "synced" in its entries is about this node's disk."""

    node_id: int
    broker_epoch: int


class SegmentHead(Struct, frozen=True, gc=False):
    """What a SEGMENT entry says. `leader`: None in version 1, when every journal was written by its own node."""

    journal: int
    seed: int
    time_ms: int
    leader: Leader | None = None


def _entry_head(kind: int, length: int, epoch: int, queue_id: int, synced: int, flags: int) -> bytes:
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise OverflowError(f"queue id {queue_id} does not fit into {QUEUE_ID_BITS} bits")
    word = flags << QUEUE_ID_BITS | queue_id
    return ENTRY_HEAD.pack(ENTRY_MAGIC, ENTRY_VERSION, kind, length, epoch, word, synced)


def batch_frame(epoch: int, queue_id: int, synced: int, batch: memoryview, seed: int, flags: int = 0) -> bytes:
    """The frame before a batch. Its CRC covers the frame and those batch bytes the batch's own CRC leaves out."""
    head = _entry_head(BATCH, len(batch), epoch, queue_id, synced, flags)
    return head + ENTRY_CRC.pack(crc32c(batch[:CRC_START], crc32c(head, seed)))


def whole_frame(kind: int, epoch: int, queue_id: int, synced: int, payload: bytes, seed: int, flags: int = 0) -> bytes:
    """The frame before a fact or a segment head: its CRC covers frame and payload."""
    head = _entry_head(kind, len(payload), epoch, queue_id, synced, flags)
    return head + ENTRY_CRC.pack(crc32c(payload, crc32c(head, seed)))


def segment_entry(journal: int, seed: int, epoch: int, synced: int, now_ms: int, leader: Leader) -> bytes:
    """First entry of a segment. Its CRC is unseeded: it is where the seed is read from."""
    payload = SEGMENT_HEAD.pack(journal, seed, now_ms, *leader)
    return whole_frame(SEGMENT, epoch, 0, synced, payload, 0) + payload


SEGMENT_ENTRY_SIZE = ENTRY_SIZE + SEGMENT_HEAD.size
SEGMENT_ENTRY_SIZES = (SEGMENT_ENTRY_SIZE, ENTRY_SIZE + SEGMENT_HEAD_1.size)  # of all versions


def segment_head(payload: Buffer) -> SegmentHead | None:
    """What the payload of a SEGMENT entry says, of any version; None if it is that of none."""
    if len(payload) == SEGMENT_HEAD.size:
        journal, seed, time_ms, *leader = SEGMENT_HEAD.unpack(payload)
        return SegmentHead(journal, seed, time_ms, Leader(*leader))
    return SegmentHead(*SEGMENT_HEAD_1.unpack(payload)) if len(payload) == SEGMENT_HEAD_1.size else None


def read_segment_head(data: bytes) -> SegmentHead | None:
    """That of the segment that begins with this; None if its first entry does not read back."""
    entry = read_entry(memoryview(data), 0, 0, 0)
    return segment_head(entry.payload) if isinstance(entry, Entry) and entry.kind == SEGMENT else None


def _is_known(version: int, kind: int, flags: int) -> bool:
    """Version 1 had no flags."""
    return BATCH <= kind <= SEGMENT and (version == ENTRY_VERSION or (version == FIRST_VERSION and not flags))


def read_entry(view: memoryview, at: int, position: int, seed: int) -> Entry | str:
    """The entry at `at` of `view` (journal position `position`), or INCOMPLETE, BAD or NEWER. Checks every byte."""
    room = len(view) - at
    if room < ENTRY_SIZE:
        return INCOMPLETE
    magic, version, kind, length, epoch, word, synced = ENTRY_HEAD.unpack_from(view, at)
    queue_id, flags = word & QUEUE_ID_MAX, word >> QUEUE_ID_BITS
    if magic != ENTRY_MAGIC or not _is_known(version, kind, flags) or length > ENTRY_LENGTH_MAX:
        return BAD
    if room < ENTRY_SIZE + length:
        return INCOMPLETE
    start = at + ENTRY_SIZE
    payload = view[start : start + length]
    crc = crc32c(view[at : at + ENTRY_HEAD.size], 0 if kind == SEGMENT else seed)
    if kind == BATCH:
        if length < CRC_START or BATCH_LENGTH.unpack_from(payload, 8)[0] + LENGTH_OVERHEAD != length:
            return BAD
        if crc32c(payload[:CRC_START], crc) != ENTRY_CRC.unpack_from(view, at + ENTRY_HEAD.size)[0]:
            return BAD
        if crc32c(payload[CRC_START:]) != _BATCH_CRC.unpack_from(payload, 17)[0]:
            return BAD
    elif crc32c(payload, crc) != ENTRY_CRC.unpack_from(view, at + ENTRY_HEAD.size)[0]:
        return BAD
    if flags & UNKNOWN_REQUIRED:
        return NEWER
    end = position + ENTRY_SIZE + length
    if kind != BATCH or length < HEADER_SIZE:
        return Entry(position, end, kind, epoch, queue_id, synced, payload, flags=flags)
    base, _, leader, _, _, attributes, delta, _, timestamp, pid, producer_epoch, sequence, count = HEADER.unpack_from(
        payload
    )
    return Entry(
        position, end, kind, epoch, queue_id, synced, payload, base, base + delta, leader, timestamp, pid,
        producer_epoch, sequence, count, attributes, flags,
    )  # fmt: skip


def is_newer_head(head: Buffer) -> bool:
    """Whether these bytes begin as an entry of a later version does. A damaged one of this version may too."""
    if len(head) < _ENTRY_VERSION.size:
        return False
    magic, version = _ENTRY_VERSION.unpack_from(head)
    return bool(magic == ENTRY_MAGIC and version > ENTRY_VERSION)


def has_unknown_flags(head: Buffer) -> bool:
    """Whether these bytes begin as an entry of this version does, with a required flag that it does not know."""
    if len(head) < ENTRY_HEAD.size:
        return False
    magic, version, _, _, _, word, _ = ENTRY_HEAD.unpack_from(head)
    return bool(magic == ENTRY_MAGIC and version == ENTRY_VERSION and word >> QUEUE_ID_BITS & UNKNOWN_REQUIRED)


def is_newer_entry(data: Buffer, seed: int) -> bool:
    """The same for all of its bytes. It is only damaged if it is whole but for the version. A required flag counts only
    if the checksum holds: else the entry is torn or damaged, whoever has written it."""
    if not is_newer_head(data):
        return read_entry(memoryview(data), 0, 0, seed) == NEWER
    for version in (FIRST_VERSION, ENTRY_VERSION):
        ours = bytearray(data)
        ours[2] = version
        if isinstance(read_entry(memoryview(ours), 0, 0, seed), Entry):
            return False
    return True


# --------------------------------------------------------------------------------- the synced end, said once more

SYNCED_HEAD = Layout(">4sIIIQ")  # magic, journal number, epoch, CRC seed, position | crc follows
SYNCED_CRC = Layout(">I")
SYNCED_MAGIC = b"CSYN"


class SyncedEnd(Struct, frozen=True, gc=False):
    """Content of a journal's file `synced`: everything before `position` had reached the disk when it was written."""

    journal: int
    epoch: int
    seed: int
    position: int

    def sealed(self) -> bytes:
        head = SYNCED_HEAD.pack(SYNCED_MAGIC, self.journal, self.epoch, self.seed, self.position)
        return head + SYNCED_CRC.pack(crc32c(head))

    @classmethod
    def unseal(cls, data: bytes) -> SyncedEnd | None:
        """None: it says nothing."""
        head = data[: SYNCED_HEAD.size]
        if len(data) < SYNCED_HEAD.size + SYNCED_CRC.size or not head.startswith(SYNCED_MAGIC):
            return None
        if crc32c(head) != SYNCED_CRC.unpack_from(data, SYNCED_HEAD.size)[0]:
            return None
        return cls(*SYNCED_HEAD.unpack(head)[1:])


# -------------------------------------------------------------------------------------------------------- facts


class StartMoved(Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The queue's log start moved (retention, DeleteRecords). Never moves back."""

    offset: int


class Keyed(Struct, frozen=True, gc=False, array_like=True, tag=2):
    """The latest value of a key in a space (committed offsets, groups, transactions); None deletes the key.

    The entry's queue id is that of the coordinator's slot; 0 for facts of the node itself.
    """

    space: str
    key: bytes
    value: bytes | None


class QueueClosed(Struct, frozen=True, gc=False, array_like=True, tag=3):
    """No further entry of this queue follows in this journal. Written when a queue changes journals (later)."""


class QueueOpened(Struct, frozen=True, gc=False, array_like=True, tag=4):
    """The queue goes on in this journal at `offset`. Written when a queue changes journals (later)."""

    offset: int


class ArchivedTo(Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Records of the queue below `offset` are in an archive too. Reserved: none writes it yet, all read it."""

    offset: int


Fact = StartMoved | Keyed | QueueClosed | QueueOpened | ArchivedTo
LOSSES = "losses"  # the space of keyed facts that remember what was accepted as lost
encode_fact = msgspec.msgpack.Encoder().encode
_fact_decoder: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)


def decode_fact(payload: Buffer) -> Fact:
    """For payloads that match their checksum: one that cannot be read was written by another version."""
    try:
        return _fact_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise TooNew(f"a fact was written by a newer version of CairnMQ: {error}") from error


# --------------------------------------------------------------------------------------------------- checkpoints

CHECKPOINT_HEAD = Layout(">HBBI")  # magic version kind length | crc follows
CHECKPOINT_CRC = Layout(">I")
CHECKPOINT_SIZE = CHECKPOINT_HEAD.size + CHECKPOINT_CRC.size
CHECKPOINT_MAGIC = 0xCA1C
NO_SEGMENTS = -1
PART = 1  # rows that count only when a COMMIT follows
COMMIT = 2  # rows and positions: publishes itself and every PART since the last COMMIT


class JournalMark(Struct, frozen=True, gc=False, array_like=True):
    """What a checkpoint says about one journal."""

    journal: int
    split: int
    replicated_end: int
    epoch: int
    seed: int


class ProducerRow(Struct, frozen=True, gc=False, array_like=True):
    """An idempotent producer's last batches on one queue: (first sequence, last sequence, base offset) each."""

    producer_id: int
    epoch: int
    timestamp: int
    batches: tuple[tuple[int, int, int], ...]
    coordinator_epoch: int = -1  # of its last marker
    txn_start: int = -1  # first offset of its open transaction


class Aborted(Struct, frozen=True, gc=False, array_like=True):
    """An aborted transaction: records of this producer from `first` to the marker at `last` count for nobody.

    `stable`: behind the marker, every transaction that began below this offset is decided.
    """

    producer_id: int
    first: int
    last: int
    stable: int


RowSum: TypeAlias = tuple[int, int]  # rows of a `.txnindex`, crc32c of their bytes


class CompactionRow(Struct, frozen=True, gc=False, array_like=True):
    """How far a queue is compacted. `swaps`: segments (first offsets) that are one now, under the first's name; the
    others are on their way out."""

    clean_end: int = 0  # no key occurs twice below
    rewritten_end: int = 0  # below, the journals hold something else than the queue log
    swaps: tuple[tuple[int, ...], ...] = ()

    @property
    def superseded(self) -> set[int]:
        return {base for swap in self.swaps for base in swap[1:]}


NOT_COMPACTED = CompactionRow()


IN_PACKS: Literal[0] = 0
IN_SEGMENTS: Literal[1] = 1  # the queue's own
Home: TypeAlias = tuple[int, Literal[0, 1]]  # from which offset on, and in which store
PACKED: tuple[Home, ...] = ((0, IN_PACKS),)
SEGMENTED: tuple[Home, ...] = ((0, IN_SEGMENTS),)


def homes_of(segments_from: int) -> tuple[Home, ...]:
    """Where the records of a queue are whose own segments begin there (NO_SEGMENTS: all are in packs)."""
    if segments_from == NO_SEGMENTS:
        return PACKED
    return (*PACKED, (segments_from, IN_SEGMENTS)) if segments_from else SEGMENTED


class QueueRow(Struct, frozen=True, gc=False, array_like=True):
    """Per-queue facts as of the split position."""

    queue_id: int
    log_start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[ProducerRow, ...] = ()
    homes: tuple[Home, ...] = PACKED  # by offset; each holds the records up to where the next one begins
    packed_bytes: int = 0  # put into packs so far
    aborted: tuple[Aborted, ...] = ()  # whose markers lie in packs
    compaction: CompactionRow = NOT_COMPACTED
    row_sums: tuple[tuple[int, RowSum], ...] = ()  # by segment; of one that is not named nothing is known

    @property
    def segments_from(self) -> int:
        """Records below lie in packs, from here on in segments of the queue's own."""
        return next((offset for offset, store in self.homes if store == IN_SEGMENTS), NO_SEGMENTS)

    @property
    def packed_end(self) -> int:
        """Records below lie in packs."""
        segments_from = self.segments_from
        return self.end if segments_from == NO_SEGMENTS else segments_from

    @property
    def needs_packs(self) -> bool:
        """Whether packs may hold anything of the queue that somebody reads. While segments are taking the place of
        others, or of packs, some readers may not have heard of it."""
        return self.log_start < self.packed_end or bool(self.compaction.swaps)

    @property
    def needs_segments(self) -> bool:
        """Whether segments of the queue's own must hold records."""
        return max(self.log_start, self.packed_end) < self.end


class KeyedRow(Struct, frozen=True, gc=False, array_like=True):
    """A keyed fact as a checkpoint has it. `queue_id`: of its coordinator's slot, 0 if it is the node's own."""

    queue_id: int
    space: str
    key: bytes
    value: bytes | None


class CheckpointRows(Struct, frozen=True, gc=False, array_like=True):
    """One checkpoint frame's payload."""

    queues: list[QueueRow] = []
    gone: list[int] = []
    keyed: list[KeyedRow] = []
    marks: list[JournalMark] = []
    unhosted: list[int] = []  # journals that this node has no more: their marks go
    time_ms: int = 0
    packs: list[int] | None = None  # all that count, in the order of their records; None: as before
    serial: int = 0  # of a COMMIT: each is one above the one before, whoever wrote that


# --------------------------------------------------------------------------------------------------------- packs

PACK_HEAD_1 = Layout(">4sHHQ")  # magic version zero number | crc follows
PACK_HEAD = Layout(">4sHHQQ")  # magic version zero number serial | crc follows
PACK_FOOT = Layout(">QII4s")  # table position, extents, crc of the table | crc follows | magic again
PACK_CRC = Layout(">I")
PACK_MAGIC = b"CPAK"
PACK_VERSION = 2
UNKNOWN_SERIAL = -1  # of packs that were written before checkpoints had one
PACK_HEAD_SIZE = PACK_HEAD.size + PACK_CRC.size
PACK_FOOT_SIZE = PACK_FOOT.size + PACK_CRC.size
EXTENT = Layout(">QqqqQIII")
EXTENT_KEY = Layout(">QQ")  # what it begins with


class Extent(Struct, frozen=True, gc=False):
    """A run of one queue's batches in a pack. `crc` covers every byte of it; `position` is that in the file."""

    queue_id: int
    base_offset: int
    end_offset: int
    max_timestamp: int
    position: int
    size: int
    batches: int
    crc: int


class PackLabel(NamedTuple):
    """What a pack is called; and the serial of the checkpoint that was the last one, durably, when it was begun. That
    there was one with that serial is all that this proves."""

    number: int
    serial: int


def pack_head(label: PackLabel) -> bytes:
    head = PACK_HEAD.pack(PACK_MAGIC, PACK_VERSION, 0, label.number, label.serial)
    return head + PACK_CRC.pack(crc32c(head))


def read_pack_head(head: bytes, number: int, name: str) -> PackLabel:
    """`head`: the first PACK_HEAD_SIZE bytes of a pack."""
    if head[: PACK_HEAD_1.size] == PACK_HEAD_1.pack(PACK_MAGIC, 1, 0, number):
        label, layout = PackLabel(number, UNKNOWN_SERIAL), PACK_HEAD_1
    elif (
        head[: PACK_HEAD_1.size] == PACK_HEAD_1.pack(PACK_MAGIC, PACK_VERSION, 0, number)
        and len(head) >= PACK_HEAD.size
    ):
        label, layout = PackLabel(number, PACK_HEAD.unpack_from(head)[4]), PACK_HEAD
    else:
        raise Corrupt(f"{name} is damaged: it has no header of pack {number}")
    if head[layout.size : layout.size + PACK_CRC.size] != PACK_CRC.pack(crc32c(head[: layout.size])):
        raise Corrupt(f"{name} is damaged: header checksum mismatch")
    return label


def pack_end(position: int, extents: list[Extent]) -> list[bytes]:
    """What stands behind the batches: the table of extents, which begins at `position`, and the foot."""
    table = b"".join(
        EXTENT.pack(e.queue_id, e.base_offset, e.end_offset, e.max_timestamp, e.position, e.size, e.batches, e.crc)
        for e in extents
    )
    foot = PACK_FOOT.pack(position, len(extents), crc32c(table), PACK_MAGIC)
    return [table, foot + PACK_CRC.pack(crc32c(foot))]


def read_pack_foot(foot: bytes, size: int, name: str) -> tuple[int, int, int]:
    """(table position, extents, crc of the table) of a pack file of `size` bytes."""
    if len(foot) != PACK_FOOT_SIZE or crc32c(foot[: PACK_FOOT.size]) != PACK_CRC.unpack(foot[PACK_FOOT.size :])[0]:
        raise Corrupt(f"{name} is damaged: footer checksum mismatch")
    position, count, crc, magic = PACK_FOOT.unpack(foot[: PACK_FOOT.size])
    if magic != PACK_MAGIC or position + count * EXTENT.size + PACK_FOOT_SIZE != size:
        raise Corrupt(f"{name} is damaged: the foot does not fit its size of {size} bytes")
    return position, count, crc


def read_extents(table: Buffer) -> list[Extent]:
    return [Extent(*fields) for fields in EXTENT.iter_unpack(table)]


# ------------------------------------------------------------------------------- queue logs (Kafka's own layout)

MARKER_KEY = Layout(">hh")  # version, type
MARKER_VALUE = Layout(">hi")  # version, coordinator epoch
OFFSET_INDEX_ENTRY = Layout(">ii")  # offset relative to the segment's base, file position
TIME_INDEX_ENTRY = Layout(">qi")  # timestamp, offset relative to the segment's base
TXN_INDEX_ENTRY = Layout(">hqqqq")  # version, then what `Aborted` holds
TXN_INDEX_VERSION = 0


def txn_index_bytes(rows: Iterable[Aborted]) -> bytes:
    return b"".join(
        TXN_INDEX_ENTRY.pack(TXN_INDEX_VERSION, row.producer_id, row.first, row.last, row.stable) for row in rows
    )


class QueueIdentity(Struct, frozen=True):
    """Content of a queue directory's `queue.json`: whose directory it is, checked on open."""

    queue_id: int
    topic: str
    partition: int
    topic_id: str
    crc: int = 0

    @property
    def directory(self) -> str:
        """Where a directory with this identity belongs."""
        return queue_directory(self.topic, self.partition)

    def sealed(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, crc=self._sum()))

    def _sum(self) -> int:
        return crc32c(f"{self.queue_id} {self.topic} {self.partition} {self.topic_id}".encode())

    @classmethod
    def unseal(cls, data: bytes, name: str) -> QueueIdentity:
        try:
            identity = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(f"{name} is damaged: {error}") from error
        if identity.crc != identity._sum():
            raise Corrupt(f"{name} is damaged: checksum differs")
        return identity


# --------------------------------------------------------------------------------------------------------- names

JOURNAL_SUFFIX = ".jnl"
CHECKPOINT_SUFFIX = ".ckpt"
PREVIOUS_SUFFIX = ".previous"  # the checkpoint file before the newest: no start believes it, it is for a repair by hand
IDENTITY_FILE = "queue.json"
PACK_SUFFIX = ".pack"
QUEUES = "queues"
PACKS = "packs"
CHECKPOINTS = "checkpoints"
INSTALLS = "installs"
DELETED_SUFFIX = "-deleted"
UNFINISHED = ".new"  # ends the name of a file that is being written; whole, it takes the name without
# Made when a sync failed: written bytes may be gone although they read well, until they were written again.
UNSYNCED = "doubt"
TO_CUT = "cut" + UNFINISHED  # in a journal's directory, while a start cuts it at damage
SYNCED_FILE = "synced"


def digits(number: int, suffix: str) -> str:
    return f"{number:020d}{suffix}"


def numbered(names: list[str], suffix: str) -> list[int]:
    """The numbers of those names that are 20 digits and the suffix, ascending."""
    end = -len(suffix)
    return sorted(int(n[:end]) for n in names if n.endswith(suffix) and len(n) == 20 - end and n[:end].isdigit())


def journal_segment(journal: int, position: int) -> str:
    return f"{journal}/{digits(position, JOURNAL_SUFFIX)}"


def pack_name(number: int, directory: str = PACKS) -> str:
    return f"{directory}/{digits(number, PACK_SUFFIX)}"


def queue_directory(topic: str, partition: int) -> str:
    return f"{QUEUES}/{topic}-{partition}"
