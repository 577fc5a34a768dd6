"""What a follower takes of a leader's bytes."""

from __future__ import annotations

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.files.format import SEGMENT_ENTRY_SIZE, Leader, segment_entry
from cairnmq.storage.journal.copied_entries import Run, runs_of, seed_of
from cairnmq.storage.journal.entries import seal_batch

SEED = 9


def head(epoch: int, *, journal: int = 0, seed: int = SEED) -> bytes:
    return segment_entry(journal, seed, epoch, 0, 1000, Leader(1, 1))


def batch(epoch: int, size: int = 20) -> bytes:
    data = memoryview(bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=b"v" * size)])))
    return seal_batch(data, 0, epoch, 5, 0, SEED, 0) + bytes(data)


def runs(data: bytes, *, epoch: int = 1, leader_epoch: int = 9, position: int = 700) -> list[Run]:
    return runs_of(memoryview(data), position, number=0, seed=SEED, epoch=epoch, leader_epoch=leader_epoch)


def test_whole_entries_are_taken_and_a_cut_one_is_dropped() -> None:
    data = batch(1) + batch(1, 300)
    for size in range(len(data) + 1):
        found = runs(data[:size])
        taken = b"".join(bytes(run.view) for run in found)
        whole = len(data) if size == len(data) else len(batch(1)) if size >= len(batch(1)) else 0
        assert taken == data[:whole]


def test_each_head_begins_a_run() -> None:
    parts = [batch(1), head(1) + batch(1) + batch(1), head(4) + batch(4), head(5)]
    found = runs(b"".join(parts))
    assert [bytes(run.view) for run in found] == parts
    assert [(run.epoch, run.begins) for run in found] == [(1, False), (1, True), (4, True), (5, True)]
    assert [entry.position for run in found for entry in run.entries][0] == 700


@pytest.mark.parametrize(("data", "epoch", "leader_epoch"), [
    (batch(1), 2, 9),  # the epoch falls
    (head(1), 2, 9),
    (head(3) + batch(3), 1, 2),  # above the leader's
    (batch(2), 1, 9),  # a new epoch without a head
    (head(2, journal=1), 1, 9),  # of another journal
    (head(2, seed=7), 1, 9),
    (b"\\0" * 100, 1, 9),
], ids=["falls", "head_falls", "above_leader", "no_head", "other_journal", "other_seed", "no_entry"])  # fmt: skip
def test_what_cannot_follow_is_refused(data: bytes, epoch: int, leader_epoch: int) -> None:
    with pytest.raises(Corrupt):
        runs(data, epoch=epoch, leader_epoch=leader_epoch)


def test_every_byte_is_checked() -> None:
    good = batch(1)
    for at in range(len(good)):
        data = bytearray(good)
        data[at] ^= 0x10
        try:
            assert runs(bytes(data)) == []  # a length that is too large looks like an entry that is cut off
        except Corrupt:
            continue
    assert len(runs(good)) == 1


def test_seed_is_in_the_first_head() -> None:
    assert seed_of(memoryview(head(1, seed=77))) == 77
    assert seed_of(memoryview(head(1))[: SEGMENT_ENTRY_SIZE - 1]) is None
    assert seed_of(memoryview(batch(1))) is None
