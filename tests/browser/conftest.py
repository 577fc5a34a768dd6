"""One browser for all tests of the page; each opens a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.chromium import PROGRAMS, Chromium, program
from programs import require_program


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if program() is None:
        require_program(PROGRAMS[0])
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium
