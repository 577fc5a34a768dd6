"""Every block of a page for users says what it is, so that somebody can do it."""

from __future__ import annotations

import pytest

from pages.page import blocks

USER_PAGES = [
    "README.md",
    "docs/start.md",
    "docs/testing-your-app.md",
    "docs/deploy.md",
    "docs/monitor.md",
    "docs/backup.md",
    "docs/upgrade.md",
]


@pytest.mark.parametrize("page", USER_PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    found = blocks(page)
    assert found
    assert [block.text for block in found if not block.language] == []
