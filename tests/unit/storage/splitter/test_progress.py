"""Positions by journal, and what a successor must know."""

from __future__ import annotations

import pytest

from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.checkpoint.split_report import QueueSplit, Resume, Round
from cairnmq.storage.files.format import NO_SEGMENTS, JournalMark
from cairnmq.storage.splitter.progress import Progress, Unreported


def image(serial: int = 3) -> CheckpointImage:
    found = CheckpointImage()
    found.marks, found.serial = {0: JournalMark(0, 100, 120, 7, 5)}, serial
    return found


def test_a_round_counts_for_a_successor_until_the_checkpoint_is_reported() -> None:
    progress = Progress(image(), [0, 1], None)
    assert (progress.positions, progress.epoch) == ({0: 100, 1: 0}, 7)
    progress.finished(Round(0, 150, 1, [QueueSplit(1, 5, 0, 0), QueueSplit(2, 5, NO_SEGMENTS, -1)], 9), 160)
    assert progress.uncheckpointed_bytes == 50
    assert progress.resume == Resume({0: 150}, [9], {1: 0}, 3)
    progress.published()
    assert progress.uncheckpointed_bytes == 0 and progress.resume.packs == [9], "a failure now needs it still"
    progress.reported(4)
    assert progress.resume == Resume({0: 150, 1: 0}, serial=4)


def test_a_journal_that_begins_now_changes_nothing_that_a_checkpoint_says() -> None:
    progress = Progress(image(), [0], None)
    progress.host(7)
    progress.host(0)
    assert progress.positions == progress.checkpointed == {0: 100, 7: 0}


def test_the_replicated_end_of_a_mark_never_falls() -> None:
    progress = Progress(image(), [0], None)
    assert progress.mark(0, JournalMark(0, 90, 200, 7, 5), 5).replicated_end == 200
    progress.finished(Round(0, 150, 1, []), 260)
    assert progress.mark(0, JournalMark(0, 90, 200, 7, 5), 5) == JournalMark(0, 150, 260, 7, 5)


def test_a_checkpoint_that_was_not_reported_is_refused() -> None:
    with pytest.raises(Unreported, match="goes by checkpoint 2, and 3 is on the read disk"):
        Progress(image(), [0], Resume(serial=2))
