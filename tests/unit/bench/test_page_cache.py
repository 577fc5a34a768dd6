"""What is free is filled by reading, and takes no disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page_cache
from bench.page_cache import PIECE_BYTES, PageCache

FREE, TOTAL = 6 * PIECE_BYTES, 2 * PIECE_BYTES


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has little memory."""
    monkeypatch.setattr(page_cache, "memory_bytes", {"MemFree": FREE, "MemTotal": TOTAL}.__getitem__)


@pytest.mark.usefixtures("small")
def test_reads_as_much_as_is_free_and_takes_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "page-cache"
    assert PageCache(path).fill() == FREE
    assert path.stat().st_size == page_cache.TIMES_OF_MEMORY * TOTAL
    assert path.stat().st_blocks * 512 < PIECE_BYTES


@pytest.mark.usefixtures("small")
def test_the_next_time_it_goes_on_and_begins_again_at_the_end(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "page-cache")
    assert [cache.fill() for _ in range(3)] == [FREE] * 3
