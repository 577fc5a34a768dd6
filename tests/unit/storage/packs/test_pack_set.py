"""What packs must hold of a queue."""

from __future__ import annotations

from cairnmq.storage.files.format import NO_SEGMENTS, Extent, QueueRow
from cairnmq.storage.packs.pack_set import gaps


def test_gaps() -> None:
    def extents(*ranges: tuple[int, int]) -> list[Extent]:
        return [Extent(1, first, end, 0, 0, 1, 1, 0) for first, end in ranges]

    row = QueueRow(1, 5, 30, segments_from=NO_SEGMENTS)
    assert list(gaps(row, [])) == [(5, 30)]
    assert list(gaps(row, extents((0, 8), (10, 20)))) == [(8, 10), (20, 30)]
    assert list(gaps(row, extents((0, 30)))) == []
    own = QueueRow(1, 5, 30, segments_from=12)
    assert list(gaps(own, extents((5, 10)))) == [(10, 12)]
    assert list(gaps(own, extents((8, 40)))) == [(5, 8)]
