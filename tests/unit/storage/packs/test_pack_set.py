"""What packs must hold of a queue."""

from __future__ import annotations

from pathlib import Path

from cairnmq.storage.check.pack_check import check_packs
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import NO_SEGMENTS, PACKS, Extent, QueueRow, homes_of, pack_name
from cairnmq.storage.packs.pack_set import PackSet, gaps


def test_gaps() -> None:
    def extents(*ranges: tuple[int, int]) -> list[Extent]:
        return [Extent(1, first, end, 0, 0, 1, 1, 0) for first, end in ranges]

    row = QueueRow(1, 5, 30, homes=homes_of(NO_SEGMENTS))
    assert list(gaps(row, [])) == [(5, 30)]
    assert list(gaps(row, extents((0, 8), (10, 20)))) == [(8, 10), (20, 30)]
    assert list(gaps(row, extents((0, 30)))) == []
    own = QueueRow(1, 5, 30, homes=homes_of(12))
    assert list(gaps(own, extents((5, 10)))) == [(10, 12)]
    assert list(gaps(own, extents((8, 40)))) == [(5, 8)]


def test_a_lost_pack_is_reported_in_words(tmp_path: Path) -> None:
    """In the log, on the status page, and by `cairn verify`: no number of an error."""
    (tmp_path / PACKS).mkdir()
    disk = RealDisk(tmp_path)
    assert PackSet(disk, [1]).broken == {1: f"{tmp_path / pack_name(1)}: no such file or directory"}
    image = CheckpointImage()
    image.packs = [1]
    (finding,) = check_packs(disk, image, None, "DATA")
    assert str(finding) == f"DATA/{pack_name(1)}: no such file or directory"
