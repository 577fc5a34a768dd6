"""What is read of damaged checkpoint files: each frame that is whole counts, and what is missing is known."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.errors import TooNew
from cairnmq.storage.checkpoint.checkpoint import (
    CheckpointLog,
    checkpoint_frames,
    checkpoint_name,
    load_checkpoint,
    previous_name,
)
from cairnmq.storage.checkpoint_repair.checkpoint_pieces import Pieces, read_pieces
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame
from cairnmq.storage.files.format import COMMIT, PART, CheckpointRows, JournalMark, KeyedRow, QueueRow
from cairnmq.testing.sim_disk import SimDisk

SEED = 77
SEEDS = {(0, SEED)}


def rows(position: int, *, seed: int = SEED) -> CheckpointRows:
    """At each position queue and fact of that number."""
    return CheckpointRows(
        queues=[QueueRow(position, 0, position)],
        keyed=[KeyedRow(0, "offset", b"%d" % position, b"value")],
        marks=[JournalMark(0, position, position, 1, seed)],
        time_ms=position,
    )


def two_files() -> tuple[SimDisk, list[bytes]]:
    """The previous one ends at 20; the newest begins there with the whole state and goes on with 30, 40 and 50. Its
    frames: two parts, a commit, three commits."""
    disk = SimDisk(Random(1))
    log = CheckpointLog(disk, load_checkpoint(disk))
    for position in (10, 20):
        log.publish(rows(position))
    log.close()
    log = CheckpointLog(disk, load_checkpoint(disk))
    log.settle()
    for position in (30, 40, 50):
        log.publish(rows(position))
    log.close()
    assert disk.list("checkpoints") == [previous_name(1).rpartition("/")[2], checkpoint_name(2).rpartition("/")[2]]
    data = disk.open(checkpoint_name(2)).read(0, 1 << 20)
    ends = [0, *(end for _, _, end in checkpoint_frames(memoryview(data)))]
    frames = [data[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    assert len(frames) == 6
    return disk, frames


def pieces(disk: SimDisk, frames: list[bytes]) -> Pieces:
    disk.replace(checkpoint_name(2), b"".join(frames))
    return read_pieces(disk, SEEDS)


def known(found: Pieces) -> list[int]:
    return sorted(found.image.queues)


def hurt(frame: bytes, at: int = 15) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def test_all_of_it() -> None:
    found = pieces(*two_files())
    assert known(found) == [10, 20, 30, 40, 50] and not found.missing
    assert (found.image.marks[0].split, found.whole_ms, found.newest, found.number) == (50, 50, checkpoint_name(2), 2)
    assert found.read == [checkpoint_name(2)], "it says all that the previous one says"


def test_one_frame_is_damaged() -> None:
    disk, frames = two_files()
    frames[4] = hurt(frames[4])
    found = pieces(disk, frames)
    assert known(found) == [10, 20, 30, 50] and found.missing == [(0, 30, 50)] and found.whole_ms == 30


def test_the_length_of_a_frame_is_damaged() -> None:
    """The next whole checkpoint is found by the seed that it holds."""
    disk, frames = two_files()
    frames[3] = hurt(frames[3], 5)
    found = pieces(disk, frames)
    assert known(found) == [10, 20, 40, 50] and found.missing == [(0, 20, 40)]


def test_a_frame_that_a_client_has_planted_does_not_count() -> None:
    disk, frames = two_files()
    planted = checkpoint_frame(COMMIT, rows(9000, seed=1))
    frames[4] = hurt(checkpoint_frame(COMMIT, CheckpointRows(keyed=[KeyedRow(0, "group", b"g", b"x" + planted)])), 5)
    assert known(pieces(disk, frames)) == [10, 20, 30, 50]


def test_a_part_of_the_whole_state_is_damaged() -> None:
    """The previous one knows it, as of then."""
    disk, frames = two_files()
    frames[0] = hurt(frames[0])
    found = pieces(disk, frames)
    assert known(found) == [10, 20, 30, 40, 50] and found.read == [previous_name(1), checkpoint_name(2)]
    assert found.missing == [(0, 20, 20)], "nothing happened between the two"
    disk.remove(previous_name(1))
    found = pieces(disk, frames)
    assert known(found) == [30, 40, 50] and found.missing == [(0, 0, 20)] and not found.whole_ms


def test_the_end_is_torn_or_cut() -> None:
    disk, frames = two_files()
    found = pieces(disk, [*frames[:5], frames[5][:20]])
    assert known(found) == [10, 20, 30, 40] and not found.missing and found.image.marks[0].split == 40
    assert known(pieces(disk, frames[:4])) == [10, 20, 30]


@pytest.mark.parametrize("way", ["gone", "empty", "zeroed"])
def test_nothing_of_the_newest_is_left(way: str) -> None:
    disk, frames = two_files()
    if way == "gone":
        disk.remove(checkpoint_name(2))
        found = read_pieces(disk, SEEDS)
        assert found.newest == ""
    else:
        found = pieces(disk, [b"" if way == "empty" else bytes(sum(map(len, frames)))])
        assert found.newest == checkpoint_name(2)
    assert known(found) == [10, 20] and found.read == [previous_name(1)] and found.number == 2


def test_both_are_gone() -> None:
    found = read_pieces(SimDisk(Random(1)), SEEDS)
    assert not found.image.queues and not found.read and found.number == 1


def test_checkpoints_of_other_journals_say_nothing() -> None:
    disk, _ = two_files()
    assert read_pieces(disk, SEEDS).read
    found = read_pieces(disk, {(0, SEED + 1)})
    assert not found.read and not found.image.queues


def test_a_newer_version_is_refused() -> None:
    disk, frames = two_files()
    newer = bytearray(checkpoint_frame(PART, CheckpointRows()))
    newer[2] = 9
    newer[-1] ^= 1
    with pytest.raises(TooNew, match="newer version of CairnMQ"):
        pieces(disk, [*frames, bytes(newer)])
