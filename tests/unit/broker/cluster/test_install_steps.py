"""What is asked, and what is made of the responses: from one machine's storage to another one's, without a network."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.broker.cluster.install_steps import InstallSteps, Refused
from cairnmq.errors import Fault
from cairnmq.replication.records import Member
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame
from cairnmq.storage.files.format import PART, Aborted, CheckpointRows, JournalMark, QueueRow, txn_index_bytes
from cairnmq.storage.install.install_files import read_install
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.wire.internal import InstallBegun, InstallPiece, InstallRefused, InstallRun, InstallRuns
from unit.storage.install.test_staged_install import records

ROWS = CheckpointRows(queues=[QueueRow(1, 0, 4), QueueRow(2, 0, 2), QueueRow(7, 5, 5)])
BEGUN = InstallBegun(9, 70, 3, 5, 1, 6)


class Bench:
    def __init__(self) -> None:
        self.disk = SimDisk(Random(1))
        self.steps = InstallSteps(4, Member(3, 30), 8, StagedInstall(self.disk, 4, 0))

    def begun(self) -> Bench:
        self.steps.took(BEGUN, memoryview(b""))
        self.steps.took(InstallPiece(), memoryview(checkpoint_frame(PART, ROWS)))
        return self

    def took(self, *runs: InstallRun, data: bytes = b"", is_last: bool = False) -> None:
        self.steps.took(InstallRuns(list(runs), is_last), memoryview(data))

    @property
    def place(self) -> tuple[int, int]:
        ask = self.steps.ask()
        assert ask is not None and ask.install == 9 and not ask.piece
        return ask.queue, ask.offset


def run(queue: int, offset: int, end: int, data: bytes, *, rewrites: int = 0, is_last: bool = False) -> InstallRun:
    return InstallRun(queue, offset, end, 0, rewrites, len(data), 0, is_last)


def test_rows_come_before_batches_and_all_is_asked_once() -> None:
    bench = Bench()
    first = bench.steps.ask()
    assert first is not None and (first.journal, first.follower, first.epoch, first.install) == (4, 3, 8, 0)
    bench.steps.took(BEGUN, memoryview(b""))
    second = bench.steps.ask()
    assert second is not None and (second.install, second.piece) == (9, 1)
    bench.steps.took(InstallPiece(), memoryview(checkpoint_frame(PART, ROWS)))
    assert bench.place == (0, 0) and bench.steps.share == 0
    one, two = records(0, 3), records(3)
    bench.took(run(1, 0, 3, one), data=one)
    assert bench.place == (1, 3) and bench.steps.share == 0.5
    bench.took(run(1, 3, 4, two, is_last=True), data=two)
    assert bench.place == (2, 0)
    last = records(0, 2)
    bench.took(run(2, 0, 2, last, is_last=True), data=last, is_last=True)
    assert bench.steps.ask() is None and bench.steps.share == 1
    bench.steps.complete()
    image = read_install(bench.disk, 4)
    assert image is not None and image.serial == 8
    assert image.marks == {4: JournalMark(4, 70, 70, 3, 5)} and set(image.queues) == {1, 2, 7}


def test_aborted_transactions_come_with_the_last_run() -> None:
    bench, data, rows = Bench().begun(), records(0, 4), [Aborted(8, 0, 3, 4)]
    aborted = txn_index_bytes(rows)
    bench.took(InstallRun(1, 0, 4, 0, 0, len(data), len(aborted), True), data=data + aborted)
    assert bench.steps.staged.image.queues[1].aborted == tuple(rows)


def test_a_compacted_queue_that_was_rewritten_comes_again() -> None:
    bench, data = Bench().begun(), records(0, 2)
    bench.took(run(1, 0, 2, data, rewrites=3), data=data)
    bench.took(InstallRun(1, 2, 2, 0, 4), run(2, 0, 2, data, is_last=True), data=data)
    assert bench.place == (1, 0), "and what follows it comes again too"
    whole = records(0, 4)
    bench.took(run(1, 0, 4, whole, rewrites=4, is_last=True), data=whole)
    assert bench.place == (2, 0)


def test_a_queue_that_was_deleted_is_left_out() -> None:
    bench = Bench().begun()
    bench.took(InstallRun(1, 0, 4, 0, is_last=True, is_gone=True), is_last=True)
    assert set(bench.steps.staged.image.queues) == {2, 7} and bench.steps.ask() is None


def test_a_refusal_says_why() -> None:
    with pytest.raises(Refused, match="another broker leads"):
        Bench().steps.took(InstallRefused("another broker leads"), memoryview(b""))


def test_batches_that_fall_short_are_noticed() -> None:
    bench, data = Bench().begun(), records(0, 2)
    with pytest.raises(Fault, match="came up to 2"):
        bench.took(run(1, 0, 3, data), data=data)


def test_a_queue_without_a_row_is_noticed() -> None:
    bench, data = Bench().begun(), records(0, 2)
    with pytest.raises(Fault, match="without a row"):
        bench.took(run(3, 0, 2, data), data=data)


def test_a_checkpoint_that_does_not_help_is_not_taken() -> None:
    """What the leader has of the journal behind it is damaged."""
    steps = InstallSteps(4, Member(3, 30), 8, StagedInstall(SimDisk(Random(1)), 4, 0), 70)
    with pytest.raises(Refused, match="is at 70, not behind 70"):
        steps.took(BEGUN, memoryview(b""))
