"""The checkpoint file: deltas, rewrites, and what a crash in the middle leaves."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.errors import Corrupt, TooNew
from cairnmq.storage.checkpoint import checkpoint
from cairnmq.storage.checkpoint.checkpoint import (
    CheckpointImage,
    CheckpointLog,
    checkpoint_name,
    load_checkpoint,
    previous_name,
)
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame
from cairnmq.storage.files.format import COMMIT, PART, CheckpointRows, JournalMark, KeyedRow, QueueRow
from cairnmq.testing.sim_disk import SimCrash, SimDisk


def rows(
    split: int, *queues: QueueRow, keyed: list[KeyedRow] | None = None, gone: list[int] | None = None
) -> CheckpointRows:
    mark = JournalMark(0, split, split, 1, 7)
    return CheckpointRows(queues=list(queues), keyed=keyed or [], gone=gone or [], marks=[mark], time_ms=split)


def names(*paths: str) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def test_nothing_yet(disk: SimDisk) -> None:
    image = load_checkpoint(disk)
    assert (image.marks, image.queues, image.keyed) == ({}, {}, {})


def test_deltas_add_up(disk: SimDisk) -> None:
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.publish(
        rows(
            10, QueueRow(1, 0, 5), QueueRow(2, 0, 3), keyed=[KeyedRow(0, "s", b"a", b"1"), KeyedRow(0, "s", b"b", b"2")]
        )
    )
    log.publish(rows(20, QueueRow(1, 2, 9), keyed=[KeyedRow(0, "s", b"a", None)], gone=[2]))
    image = load_checkpoint(disk.crash())
    assert image.queues == {1: QueueRow(1, 2, 9)}
    assert image.keyed == {("s", b"b"): KeyedRow(0, "s", b"b", b"2")}
    assert image.marks[0].split == 20 and image.time_ms == 20


def test_a_torn_delta_does_not_count_and_is_never_appended_to(disk: SimDisk) -> None:
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.publish(rows(10, QueueRow(1, 0, 5)))
    file = disk.open(checkpoint_name(1), write=True)
    file.append([checkpoint_frame(2, rows(20, QueueRow(1, 0, 8)))[:-3]])
    image = load_checkpoint(disk)
    assert image.queues[1].end == 5
    CheckpointLog(disk, image).publish(rows(30, QueueRow(2, 0, 1)))
    assert disk.list("checkpoints") == names(previous_name(1), checkpoint_name(2))
    assert load_checkpoint(disk).queues == {1: QueueRow(1, 0, 5), 2: QueueRow(2, 0, 1)}


def test_a_checkpoint_inside_a_torn_one_is_no_later_one(disk: SimDisk) -> None:
    """A client has put it into a fact."""
    CheckpointLog(disk, load_checkpoint(disk)).publish(rows(10, QueueRow(1, 0, 5)))
    planted = checkpoint_frame(COMMIT, CheckpointRows(marks=[JournalMark(0, 1 << 40, 1 << 40, 1, 0)]))
    torn = bytearray(checkpoint_frame(COMMIT, rows(20, keyed=[KeyedRow(0, "group", b"g", b"member" + planted)])))
    torn[20] ^= 1
    file = disk.open(checkpoint_name(1), write=True)
    file.append([torn])
    assert load_checkpoint(disk).queues[1].end == 5
    file.append([checkpoint_frame(COMMIT, rows(30))])
    with pytest.raises(Corrupt, match="a later checkpoint follows"):
        load_checkpoint(disk)


def test_parts_count_only_with_a_commit(disk: SimDisk) -> None:
    CheckpointLog(disk, load_checkpoint(disk)).publish(rows(10, QueueRow(1, 0, 5)))
    disk.open(checkpoint_name(1), write=True).append([checkpoint_frame(PART, rows(20, QueueRow(1, 0, 8)))])
    assert load_checkpoint(disk).queues[1].end == 5


def test_a_file_without_a_commit_is_damage(disk: SimDisk) -> None:
    disk.make_dir("checkpoints")
    disk.create(checkpoint_name(4)).append([b"\0" * 100])
    with pytest.raises(Corrupt, match=checkpoint_name(4)):
        load_checkpoint(disk)


def test_it_is_rewritten_when_large(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "REWRITE_BYTES_MIN", 500)
    monkeypatch.setattr(checkpoint, "PART_ROWS", 2)
    log = CheckpointLog(disk, load_checkpoint(disk))
    for number in range(40):
        log.publish(rows(number, QueueRow(number % 5, 0, number), keyed=[KeyedRow(0, "s", b"%d" % (number % 3), b"v")]))
    assert log.image.file_number > 2
    image = load_checkpoint(disk)
    assert image.queues == log.image.queues and len(image.queues) == 5
    assert image.keyed == log.image.keyed and len(image.keyed) == 3


def test_every_crash_leaves_one_checkpoint_or_the_next() -> None:
    for at in range(1, 40):
        for seed in range(4):
            disk = SimDisk(Random(seed))
            disk.crash_at = at
            published = 0
            try:
                log = CheckpointLog(disk, load_checkpoint(disk))
                for number in (1, 2, 3):
                    log.publish(rows(number, QueueRow(1, 0, number)))
                    published = number
            except SimCrash:
                pass
            image = load_checkpoint(disk.crash())
            found = image.queues[1].end if image.queues else 0
            assert published <= found <= published + 1, (at, seed)


def test_a_failed_publish_can_be_repeated(disk: SimDisk) -> None:
    log = CheckpointLog(disk, CheckpointImage())
    log.publish(rows(10, QueueRow(1, 0, 5)))
    disk.faults[disk.operations + 1] = errno.ENOSPC
    with pytest.raises(OSError):
        log.publish(rows(20, QueueRow(1, 0, 8)))
    log.publish(rows(20, QueueRow(1, 0, 8)))
    assert load_checkpoint(disk.crash()).queues[1].end == 8


def test_a_loaded_checkpoint_is_settled_by_writing_it_again(disk: SimDisk) -> None:
    """Its last frame may be in the page cache only, even behind a sync: that sync may have failed before."""
    log = CheckpointLog(disk, CheckpointImage())
    log.publish(rows(10, QueueRow(1, 0, 5)))
    disk.faults[disk.operations + 2] = errno.EIO
    with pytest.raises(OSError):
        log.publish(rows(20, QueueRow(1, 3, 8)))
    disk.faults.clear()
    disk = disk.kill()
    disk.open(checkpoint_name(1), write=True).sync()
    assert {load_checkpoint(disk.crash(Random(seed))).queues[1].end for seed in range(20)} == {5}
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.settle()
    assert {load_checkpoint(disk.crash(Random(seed))).queues[1].end for seed in range(20)} == {8}
    operations = disk.operations
    log.settle()  # once is enough
    assert disk.operations == operations


def started(disk: SimDisk, split: int) -> CheckpointLog:
    """A run that publishes once."""
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.publish(rows(split, QueueRow(1, 0, split)))
    return log


def test_the_file_before_a_rewrite_is_kept_and_no_other(disk: SimDisk) -> None:
    for split in (10, 20, 30, 40):
        started(disk, split)
    assert disk.list("checkpoints") == names(previous_name(3), checkpoint_name(4))
    disk.rename(previous_name(3), checkpoint_name(3))
    disk.remove(checkpoint_name(4))
    assert load_checkpoint(disk).queues[1].end == 30, "what it says is what the run before said"


def test_the_previous_checkpoint_is_never_believed_by_a_start(disk: SimDisk) -> None:
    """Not even when the newest is gone: files that it names may be gone too."""
    started(disk, 10)
    started(disk, 20)
    disk.remove(checkpoint_name(2))
    image = load_checkpoint(disk)
    assert not image.file_number and not image.marks
    started(disk, 30)
    assert disk.list("checkpoints") == names(previous_name(1), checkpoint_name(2)), "numbers go on above it"


def test_a_loaded_checkpoint_that_is_settled_is_the_previous_one(disk: SimDisk) -> None:
    started(disk, 10)
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.settle()
    log.publish(rows(20, QueueRow(1, 0, 20)))
    log.publish(rows(30, QueueRow(1, 0, 30)))
    assert disk.list("checkpoints") == names(previous_name(1), checkpoint_name(2))


def test_what_the_disk_refuses_behind_a_rewrite_does_not_undo_it(disk: SimDisk) -> None:
    started(disk, 10)
    log = CheckpointLog(disk, load_checkpoint(disk))
    disk.observe = lambda disk: refuse_previous(disk)
    log.publish(rows(20, QueueRow(1, 0, 20)))
    disk.observe = None
    assert disk.list("checkpoints") == names(checkpoint_name(1), checkpoint_name(2))
    started(disk, 30)
    assert disk.list("checkpoints") == names(previous_name(2), checkpoint_name(3))


def refuse_previous(disk: SimDisk) -> None:
    if disk.last_operation.endswith(".previous"):
        raise OSError(errno.EIO, "refused")


def test_every_power_loss_in_a_rewrite_leaves_the_old_or_the_new_one_to_count() -> None:
    seen = set()
    for at in range(1, 30):
        for seed in range(6):
            disk = SimDisk(Random(seed))
            for split in (10, 20):
                started(disk, split)
            disk.crash_at = disk.operations + at
            published = False
            try:
                started(disk, 30)
                published = True
            except SimCrash:
                pass
            after = disk.crash()
            assert load_checkpoint(after).queues[1].end in ({30} if published else {20, 30}), (at, seed)
            started(after, 40)
            kept = after.list("checkpoints")
            assert len(kept) == 2 and kept[0].endswith(".previous") and kept[1].endswith(".ckpt"), (at, seed, kept)
            seen.add(published)
    assert seen == {True, False}


def test_a_mark_goes_with_its_journal(disk: SimDisk) -> None:
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.publish(CheckpointRows(marks=[JournalMark(number, 10, 10, 1, 7) for number in (0, 3)]))
    log.publish(CheckpointRows(marks=[JournalMark(0, 20, 20, 1, 7)], unhosted=[3]))
    assert set(load_checkpoint(disk).marks) == {0}
    log.publish(CheckpointRows(unhosted=[0]))
    assert load_checkpoint(disk).marks == {}, "a node may host none"
    assert set(load_checkpoint(disk.crash()).marks) == set()


def test_a_store_that_nobody_knows_is_of_a_later_version(disk: SimDisk) -> None:
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.publish(CheckpointRows(queues=[QueueRow(1, 0, 5, homes=((0, 7),))]))  # type: ignore[arg-type]
    with pytest.raises(TooNew):
        load_checkpoint(disk)
