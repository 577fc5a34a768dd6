"""Frames of checkpoints: every byte is covered by a checksum, and those of version 1 are read as rows of today."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from cairnmq.storage.files.checkpoint_frame import checkpoint_frame, is_newer_frame, read_checkpoint_frame
from cairnmq.storage.files.format import COMMIT, CheckpointRows, JournalMark, KeyedRow, ProducerRow, QueueRow, homes_of

SEED = 0x1234
CHECKPOINT = (
    "ca1c0202000000452a99a9da98919a01021e9192030091960500079193000102ffff92920000920a01649093000090909104919409a66f"
    "6666736574c40167c40137919500323c03cd1234910208910106"
)
CHECKPOINT_1 = (
    "ca1c01020000003e76e6ce1d98919a01021e9192030091960500079193000102ffff0a649093000090909104919402a66f666673657"
    "4c40167c40137919500323c03cd123408c3910106"
)
ROWS = CheckpointRows(
    queues=[QueueRow(1, 2, 30, ((3, 0),), (ProducerRow(5, 0, 7, ((0, 1, 2),)),), homes_of(10), 100)],
    gone=[4],
    keyed=[KeyedRow(9, "offset", b"g", b"7")],
    marks=[JournalMark(0, 50, 60, 3, SEED)],
    unhosted=[2],
    time_ms=8,
    packs=[1],
    serial=6,
)


def test_checkpoints_of_both_versions() -> None:
    assert checkpoint_frame(COMMIT, ROWS).hex() == CHECKPOINT
    found = [read_checkpoint_frame(memoryview(bytes.fromhex(data)), 0) for data in (CHECKPOINT, CHECKPOINT_1)]
    assert found[0] is not None and found[0][1] == ROWS
    assert found[1] is not None and found[1][1] == replace(ROWS, unhosted=[], keyed=[KeyedRow(0, "offset", b"g", b"7")])


def test_checkpoint_frames_notice_every_flipped_bit() -> None:
    frame = checkpoint_frame(COMMIT, CheckpointRows(queues=[QueueRow(1, 2, 3)], time_ms=9))
    found = read_checkpoint_frame(memoryview(frame), 0)
    assert found is not None and found[1].queues == [QueueRow(1, 2, 3)] and found[2] == len(frame)
    for at in range(len(frame)):
        bad = bytearray(frame)
        bad[at] ^= 0x10
        assert read_checkpoint_frame(memoryview(bad), 0) is None, at
        assert read_checkpoint_frame(memoryview(frame[:at]), 0) is None, at


def test_a_version_that_nobody_knows_is_newer_unless_it_is_damage() -> None:
    frame = bytearray(checkpoint_frame(COMMIT, ROWS))
    frame[2] = 3
    assert not is_newer_frame(memoryview(frame), 0), "all else is right for this version"
    frame[-1] ^= 1
    assert is_newer_frame(memoryview(frame), 0)


def test_rows_that_cannot_be_read_are_no_torn_frame() -> None:
    row = QueueRow(1, 0, 5, homes=((0, 7),))  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        read_checkpoint_frame(memoryview(checkpoint_frame(COMMIT, CheckpointRows(queues=[row]))), 0)
