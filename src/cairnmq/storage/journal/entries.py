"""Journal entries where every nanosecond counts: made by the write path, read in runs by whoever walks a journal, and
looked for behind damage among bytes that clients chose.

Pure twin of _entries.pyx.
"""

from __future__ import annotations

import re

from cairnmq.codec.batch import CRC_START, LENGTH_OVERHEAD, set_offset_and_epoch
from cairnmq.codec.crc32c import crc32c
from cairnmq.storage.files.format import (
    BATCH,
    BATCH_LENGTH,
    ENTRY_CRC,
    ENTRY_HEAD,
    ENTRY_SIZE,
    FACT,
    SEGMENT,
    SEGMENT_HEAD,
    SEGMENT_HEAD_1,
    Entry,
    batch_frame,
    read_entry,
)

LOOSE_FACT_MAX = 64 << 10  # a longer fact is not found by `find_entry`, only behind another entry
FREE_FACT_MAX = 256  # shorter ones are summed whatever the credit
_HEAD_START = re.compile(rb"\xca\x1a[\x01\x02][\x01-\x03]", re.DOTALL)
_SEGMENT_LENGTHS = (SEGMENT_HEAD.size, SEGMENT_HEAD_1.size)


def seal_batch(batch: memoryview, offset: int, epoch: int, queue_id: int, synced: int, seed: int, flags: int) -> bytes:
    """Patches offset and epoch into the batch; returns the frame to be written before it."""
    set_offset_and_epoch(batch, offset, epoch)
    return batch_frame(epoch, queue_id, synced, batch, seed, flags)


def scan_entries(view: memoryview, at: int, origin: int, seed: int, limit: int, most: int) -> tuple[list[Entry], int]:
    """Whole valid entries from `at` of `view` on, at most `most`, none that ends behind journal position `limit`; and
    where in `view` they end. `origin` is the journal position of the view's first byte."""
    found: list[Entry] = []
    while len(found) < most:
        entry = read_entry(view, at, origin + at, seed)
        if not isinstance(entry, Entry) or entry.end > limit:
            break
        found.append(entry)
        at = entry.end - origin
    return found, at


def find_entry(view: memoryview, at: int, until: int, origin: int, seed: int, credit: int) -> tuple[int, int]:
    """Where from `at` to before `until` of `view` an entry begins, -1 if none does; and what is left of `credit`.

    The time it takes must follow the bytes, whatever clients have put into them. The head of a batch has a checksum of
    its own, so what is no head costs little; the rest of the batch is not looked at here. A fact must be summed as a
    whole: `credit` is how many bytes of longer ones may still be summed in vain, and those beyond it are passed over.
    """
    end = len(view)
    for match in _HEAD_START.finditer(view, at, min(until + 3, end)):
        place = match.start()
        if place >= until or end - place < ENTRY_SIZE:
            break
        _, _, kind, length, _, _, synced = ENTRY_HEAD.unpack_from(view, place)
        summed = length
        if kind == BATCH:
            summed = CRC_START
            if length < CRC_START or end - place < ENTRY_SIZE + CRC_START:
                continue
            if BATCH_LENGTH.unpack_from(view, place + ENTRY_SIZE + 8)[0] + LENGTH_OVERHEAD != length:
                continue
        elif length not in _SEGMENT_LENGTHS if kind == SEGMENT else length > LOOSE_FACT_MAX:
            continue
        if synced > origin + place or end - place < ENTRY_SIZE + summed:
            continue
        charged = kind == FACT and length > FREE_FACT_MAX
        if charged and length > credit:
            continue
        crc = crc32c(view[place : place + ENTRY_HEAD.size], 0 if kind == SEGMENT else seed)
        start = place + ENTRY_SIZE
        if crc32c(view[start : start + summed], crc) == ENTRY_CRC.unpack_from(view, place + ENTRY_HEAD.size)[0]:
            return place, credit
        if charged:
            credit -= length
    return -1, credit
