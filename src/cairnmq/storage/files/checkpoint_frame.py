"""Frames of a checkpoint file: those of this version, and those of the first, which are read as rows of today.

Text: docs/format.md. What the rows are is in format.py.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.codec.crc32c import crc32c
from cairnmq.storage.files.format import (
    CHECKPOINT_CRC,
    CHECKPOINT_HEAD,
    CHECKPOINT_MAGIC,
    CHECKPOINT_SIZE,
    FIRST_VERSION,
    NO_SEGMENTS,
    NOT_COMPACTED,
    Aborted,
    CheckpointRows,
    CompactionRow,
    JournalMark,
    Keyed,
    KeyedRow,
    ProducerRow,
    QueueRow,
    RowSum,
    homes_of,
)
from cairnmq.types import Buffer

CHECKPOINT_VERSION = 2


class _QueueRow1(Struct, frozen=True, gc=False, array_like=True):
    """As version 1 had it."""

    queue_id: int
    log_start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[ProducerRow, ...] = ()
    segments_from: int = NO_SEGMENTS
    packed_bytes: int = 0
    aborted: tuple[Aborted, ...] = ()
    compaction: CompactionRow = NOT_COMPACTED
    row_sums: tuple[tuple[int, RowSum], ...] = ()

    def now(self) -> QueueRow:
        return QueueRow(
            self.queue_id,
            self.log_start,
            self.end,
            self.epochs,
            self.producers,
            homes_of(self.segments_from),
            self.packed_bytes,
            self.aborted,
            self.compaction,
            self.row_sums,
        )


class _CheckpointRows1(Struct, frozen=True, gc=False, array_like=True):
    """As version 1 had them: keyed facts without slots, and a word on the stop that later starts could believe too."""

    queues: list[_QueueRow1] = []
    gone: list[int] = []
    keyed: list[Keyed] = []
    marks: list[JournalMark] = []
    time_ms: int = 0
    clean: bool = False
    packs: list[int] | None = None
    serial: int = 0

    def now(self) -> CheckpointRows:
        return CheckpointRows(
            [row.now() for row in self.queues],
            self.gone,
            [KeyedRow(0, fact.space, fact.key, fact.value) for fact in self.keyed],
            self.marks,
            time_ms=self.time_ms,
            packs=self.packs,
            serial=self.serial,
        )


_encode_rows = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(CheckpointRows).decode
_decode_rows_1 = msgspec.msgpack.Decoder(_CheckpointRows1).decode


def checkpoint_frame(kind: int, rows: CheckpointRows) -> bytes:
    payload = _encode_rows(rows)
    head = CHECKPOINT_HEAD.pack(CHECKPOINT_MAGIC, CHECKPOINT_VERSION, kind, len(payload))
    return head + CHECKPOINT_CRC.pack(crc32c(payload, crc32c(head))) + payload


def read_checkpoint_frame(view: memoryview, at: int) -> tuple[int, CheckpointRows, int] | None:
    """(kind, rows, next position), or None when no whole valid frame stands at `at`."""
    if len(view) - at < CHECKPOINT_SIZE:
        return None
    magic, version, kind, length = CHECKPOINT_HEAD.unpack_from(view, at)
    start = at + CHECKPOINT_SIZE
    if magic != CHECKPOINT_MAGIC or not FIRST_VERSION <= version <= CHECKPOINT_VERSION or len(view) - start < length:
        return None
    payload = view[start : start + length]
    crc = crc32c(payload, crc32c(view[at : at + CHECKPOINT_HEAD.size]))
    if crc != CHECKPOINT_CRC.unpack_from(view, at + CHECKPOINT_HEAD.size)[0]:
        return None
    rows = _decode_rows(payload) if version == CHECKPOINT_VERSION else _decode_rows_1(payload).now()
    return kind, rows, start + length


def frame_version(frame: Buffer) -> int:
    """Of a frame that has been read."""
    version: int = CHECKPOINT_HEAD.unpack_from(frame)[1]
    return version


def is_newer_frame(view: memoryview, at: int) -> bool:
    """A frame of a later version stands at `at`, and not one of this version with a damaged byte."""
    if len(view) - at < CHECKPOINT_SIZE:
        return False
    magic, version, _, _ = CHECKPOINT_HEAD.unpack_from(view, at)
    if magic != CHECKPOINT_MAGIC or version <= CHECKPOINT_VERSION:
        return False
    for known in (FIRST_VERSION, CHECKPOINT_VERSION):
        ours = bytearray(view[at:])
        ours[2] = known
        if _holds(memoryview(ours)):
            return False
    return True


def _holds(frame: memoryview) -> bool:
    try:
        return read_checkpoint_frame(frame, 0) is not None
    except msgspec.MsgspecError:
        return False
