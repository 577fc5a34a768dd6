"""Whole entries of a journal behind a place that does not read back.

Nothing behind damage is aligned, so entries are looked for byte by byte; behind one that is found the next one begins.
The seed keeps clients from planting entries inside their messages. What they plant in vain must not cost more than
other bytes, so the search takes a time that follows the bytes, and it reads them in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from cairnmq.errors import TooNew
from cairnmq.kernels import pick
from cairnmq.storage.files.format import ENTRY_SIZE, FACT, SEGMENT, Entry, StartMoved, decode_fact, segment_head
from cairnmq.storage.journal import entries
from cairnmq.storage.journal.entries import LOOSE_FACT_MAX
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.owner import own_nodes
from cairnmq.storage.recovery.witness import Seen

find_entry = pick(entries.find_entry)

PIECE_BYTES = 1 << 20
# Bytes of facts that may be summed in vain: to begin with, and for each byte that is walked over.
CREDIT = 1 << 20
CREDIT_PER_BYTE = 16


def entries_behind(reader: JournalReader, position: int) -> Iterator[Entry]:
    """Those at `position` or behind it, in this segment and in later ones, in order. TooNew: among them is a whole one
    of a later version."""
    seed = reader.find_seed()
    for index, base in enumerate(reader.bases):
        end = reader.segment_end(index)
        at = max(base, position)
        credit = CREDIT
        while at < end:
            for entry in reader.entries(at, end):
                at = entry.end
                if _is_own(entry, seed):
                    yield entry
            if at < end and reader.is_flagged_at(at):
                raise TooNew(
                    f"journal {reader.number} at position {at}: an entry was written by a newer version of CairnMQ. "
                    f"Start the newer version; nothing was changed."
                )
            at, credit = _find(reader, at + 1, end, seed, credit)


def every_epoch(epoch: int) -> bool:
    """A journal with one replica was always led by this broker."""
    return True


class Behind(Struct):
    """What is known of a journal behind a position at which it does not read back."""

    synced: int = 0  # everything before this had reached the disk
    queue_ids: set[int] = field(default_factory=set)
    starts: dict[int, int] = field(default_factory=dict)  # queue -> where its log start was moved to there
    seen: Seen = field(default_factory=Seen)  # what was given out there must not be given out again


def look_behind(reader: JournalReader, position: int, led: Callable[[int], bool] = every_epoch) -> Behind:
    """An entry claims the synced end that its writer knew; the file `synced` says it too. Another leader's claim is
    about another disk, and says nothing of this one. `led`: whether an epoch's claims of this node count."""
    known, own = Behind(reader.synced_end()), own_nodes(reader.disk)
    for entry in entries_behind(reader, position + 1):
        if led(entry.epoch) and (own is None or _leader_of(reader, entry) in (None, *own)):
            known.synced = max(known.synced, entry.synced)
        known.queue_ids.add(entry.queue_id)
        known.seen.add_entry(entry)
        if entry.kind == FACT and isinstance(fact := decode_fact(entry.payload), StartMoved):
            known.starts[entry.queue_id] = max(fact.offset, known.starts.get(entry.queue_id, 0))
    return known


def _leader_of(reader: JournalReader, entry: Entry) -> int | None:
    """The node that wrote the entry's segment. None: the segment does not say, so it counts as this one's."""
    head = reader.head_before(entry.position)
    return head.leader.node_id if head is not None and head.leader is not None else None


def _find(reader: JournalReader, at: int, end: int, seed: int, credit: int) -> tuple[int, int]:
    """The position of the next entry from `at` on, `end` if there is none; and the credit that is left."""
    while at < end:
        view, _ = reader.read(at, min(PIECE_BYTES, end - at))
        if not view:
            break  # the file is shorter than its part
        is_last = at + len(view) >= end or len(view) < PIECE_BYTES
        until = len(view) if is_last else len(view) - ENTRY_SIZE - LOOSE_FACT_MAX
        place, credit = find_entry(view, 0, until, at, seed, credit + CREDIT_PER_BYTE * until)
        if place >= 0:
            return at + place, max(credit - CREDIT_PER_BYTE * (until - place), 0)
        at += until
    return end, credit


def _is_own(entry: Entry, seed: int) -> bool:
    """Of a segment's head the CRC is unseeded, and anybody could write one; but it holds the seed."""
    if entry.kind != SEGMENT:
        return True
    head = segment_head(entry.payload)
    return head is not None and head.seed == seed
