"""Journal entries where every nanosecond counts: made by the write path, read in runs by whoever walks a journal.

Pure twin of _entries.pyx.
"""

from __future__ import annotations

from cairnmq.codec.batch import set_offset_and_epoch
from cairnmq.storage.format import Entry, batch_frame, read_entry


def seal_batch(batch: memoryview, offset: int, epoch: int, queue_id: int, synced: int, seed: int) -> bytes:
    """Patches offset and epoch into the batch; returns the frame to be written before it."""
    set_offset_and_epoch(batch, offset, epoch)
    return batch_frame(epoch, queue_id, synced, batch, seed)


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
