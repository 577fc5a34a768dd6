"""Nothing is left out by mistake, and the list has nothing that is gone."""

from __future__ import annotations

import re
from pathlib import Path

from interop_cluster.one_node import FILES, ONE_NODE

HERE = Path(__file__).parent
INTEROP = HERE.parent / "interop"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("test_*.py")}


def test_every_file_is_run_or_has_a_reason() -> None:
    assert names(HERE) - {Path(__file__).name} == names(INTEROP) - FILES.keys()
    assert FILES.keys() <= names(INTEROP)


def test_every_test_that_is_left_out_exists() -> None:
    for name in ONE_NODE:
        file, _, test = name.partition("::")
        assert (HERE / file).exists(), name
        assert re.search(rf"^def {test}\(", (INTEROP / file).read_text(), re.MULTILINE), name
