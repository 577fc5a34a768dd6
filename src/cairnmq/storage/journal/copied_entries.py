"""A leader's journal bytes, looked at before a follower appends them: whole entries, and of no wrong epoch."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.kernels import pick
from cairnmq.storage.files.format import INCOMPLETE, SEGMENT, SEGMENT_ENTRY_SIZE, Entry, read_entry, read_segment_head
from cairnmq.storage.journal import entries

scan_entries = pick(entries.scan_entries)


class Run(Struct):
    """Entries that go into one file, one behind the other. `begins`: the first is the head of a segment."""

    view: memoryview
    epoch: int
    entries: list[Entry]
    begins: bool


def runs_of(data: memoryview, position: int, *, number: int, seed: int, epoch: int, leader_epoch: int) -> list[Run]:
    """The whole entries at the beginning of `data`, which a leader has at `position`; what is cut off there is dropped.

    `epoch`: of the entry before. Corrupt says that these cannot follow it in this journal; then none of them may.
    """
    found = scan_entries(data, 0, position, seed, position + len(data), len(data))[0]
    end = found[-1].end - position if found else 0
    if read_entry(data, end, position + end, seed) != INCOMPLETE:
        raise Corrupt(f"journal {number}: the leader's bytes at position {position + end} are no entry")
    runs: list[Run] = []
    for entry in found:
        begins = entry.kind == SEGMENT
        if not epoch <= entry.epoch <= leader_epoch or (entry.epoch > epoch and not begins):
            raise Corrupt(
                f"journal {number}: the leader of epoch {leader_epoch} sent an entry of epoch {entry.epoch} after one "
                f"of epoch {epoch}, at position {entry.position}"
            )
        if begins:
            _check_head(data[entry.position - position :], entry.position, number, seed)
        if begins or not runs:
            runs.append(Run(data[entry.position - position : end], entry.epoch, [], begins))
        epoch = entry.epoch
        runs[-1].entries.append(entry)
    for run in runs[:-1]:
        run.view = run.view[: run.entries[-1].end - run.entries[0].position]
    return runs


def _check_head(data: memoryview, position: int, number: int, seed: int) -> None:
    """Its CRC is unseeded, so it must say by itself of which journal it is."""
    head = read_segment_head(bytes(data[:SEGMENT_ENTRY_SIZE]))
    if head is None or (head.journal, head.seed) != (number, seed):
        raise Corrupt(f"journal {number}: the leader's segment at position {position} is of another journal")


def seed_of(data: memoryview) -> int | None:
    """Of a journal that begins with these bytes; None if they do not hold its first entry."""
    head = read_segment_head(bytes(data[:SEGMENT_ENTRY_SIZE]))
    return head.seed if head is not None else None
