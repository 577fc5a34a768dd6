"""Journals byte for byte, below what all replicas know to be replicated and over what at least two of them hold."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.storage.check.journal_comparison import compare_journals
from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.format import numbered
from cairnmq.storage.journal.replica_note import ReplicaNote, replica_name
from unit.storage.compaction_harness import Room
from unit.storage.comparison_harness import filled, replica_of, restate


def compared(*rooms: Room) -> list[str]:
    replicas = [replica_of(room, name) for name, room in zip("abc", rooms, strict=False)]
    assert all(replica.open() for replica in replicas)
    try:
        return [str(finding) for finding in compare_journals(0, replicas)]
    finally:
        for replica in replicas:
            replica.close()


def segments(room: Room) -> list[int]:
    return numbered(room.journal_disk.list("0"), ".jnl")


def flip(room: Room, position: int) -> None:
    base = max(base for base in segments(room) if base <= position)
    room.journal_disk.damage(f"0/{base:020d}.jnl", position - base)


def test_every_position_counts() -> None:
    random = Random(1)
    end = filled().engine.paths[0].journal.end
    for position in (0, *(random.randrange(1, end) for _ in range(20)), end - 1):
        hurt = filled()
        flip(hurt, position)
        (line,) = compared(filled(), filled(), hurt)
        base = max(base for base in segments(hurt) if base <= position)
        text = f"differs from a and b at journal position {position}, below the replicated end {end}"
        assert line == f"c/journal/0/{base:020d}.jnl: {text}"


def test_what_only_some_hold_is_compared_among_them() -> None:
    whole, hurt, short = filled(), filled(), filled()
    flip(hurt, 300)
    assert len(segments(short)) > 2
    short.journal_disk.remove(f"0/{segments(short)[0]:020d}.jnl")
    (line,) = compared(whole, short, hurt)
    assert line.startswith("c/journal/0/") and "differs from a at journal position 300" in line


def test_above_the_smallest_replicated_end_nothing_counts() -> None:
    one, other = filled(), filled()
    end = one.engine.paths[0].journal.end
    flip(other, end - 1)
    restate(one, lambda image: image.marks.update({0: replace(image.marks[0], split=0, replicated_end=end - 1)}))
    assert compared(one, other) == []


@pytest.mark.parametrize("noted", [0, 300])
def test_what_a_replica_noted_counts_more_than_the_checkpoint(noted: int) -> None:
    """An election may have cut below what the checkpoint calls replicated, but never what was split."""
    one, other = filled(), filled()
    end = one.engine.paths[0].journal.end
    flip(other, 500)
    one.journal_disk.replace(replica_name(0), sealed_json.seal(ReplicaNote(noted)))
    assert len(compared(one, other)) == 1  # it was split
    restate(one, lambda image: image.marks.update({0: replace(image.marks[0], split=0)}))
    assert compared(one, other) == []
    one.journal_disk.replace(replica_name(0), sealed_json.seal(ReplicaNote(end)))
    assert len(compared(one, other)) == 1


def test_a_note_that_is_damaged_does_not_count() -> None:
    one, other = filled(), filled()
    flip(other, 500)
    one.journal_disk.replace(replica_name(0), sealed_json.seal(ReplicaNote(0))[:-2])
    assert len(compared(one, other)) == 1
