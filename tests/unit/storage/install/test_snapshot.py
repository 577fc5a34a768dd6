"""What a leader gives of its checkpoint: the rows and facts of one journal."""

from __future__ import annotations

import pytest

from cairnmq.errors import Fault
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.checkpoint_frame import read_checkpoint_frame
from cairnmq.storage.install.snapshot import newest_checkpoint, take_snapshot
from unit.storage.cluster_harness import Cluster
from unit.storage.install.install_harness import busy_cluster, snapshot_of


def test_rows_and_facts_are_of_that_journal() -> None:
    leader = busy_cluster().leader
    image = load_checkpoint(leader.disks[1])
    four, nine = snapshot_of(leader), snapshot_of(leader, 9)
    assert four.mark == image.marks[4] and nine.mark == image.marks[9]
    assert four.queues_from(0) == [1, 2] and four.queues_from(2) == [2] and nine.queues_from(0) == [3]
    frames = [read_checkpoint_frame(memoryview(piece), 0) for piece in four.pieces]
    rows = [row for frame in frames if frame is not None for row in frame[1].queues]
    facts = [row.value for frame in frames if frame is not None for row in frame[1].keyed]
    assert rows == [image.queues[1], image.queues[2]] and facts == [b"11"]


def test_slots_of_other_journals_are_left_out() -> None:
    leader = busy_cluster().leader
    assert len(take_snapshot(newest_checkpoint(leader.disks[1]), 9, {3}, {77}).pieces) == 1


def test_a_journal_without_a_checkpoint_is_refused() -> None:
    with pytest.raises(Fault, match="journal 4 is in no checkpoint yet"):
        snapshot_of(Cluster().leader)
