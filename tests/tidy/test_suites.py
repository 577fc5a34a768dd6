"""What tests/suites.py says about suites is about suites that exist, and docs/testing.md has a row for each."""

from __future__ import annotations

import re

from suites import FIRST, LONG_SUITES, SHARED, SINGLE, scope_of, suite_of
from tidy.tree import ROOT, collected


def suites() -> set[str]:
    return {suite_of(node) for node in collected()}


def test_suites_exist() -> None:
    assert {*FIRST, *LONG_SUITES, *SHARED, *SINGLE} <= suites()


def test_every_suite_is_described() -> None:
    described = re.findall(r"^\| `tests/(\w+)` \|", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(suites())


def test_what_one_process_gets() -> None:
    assert scope_of("tests/spark/test_a.py::test_x") == scope_of("tests/spark/test_b.py::test_y")
    assert scope_of("tests/sim/test_a.py::test_x[1]") != scope_of("tests/sim/test_a.py::test_x[2]")
    assert scope_of("tests/unit/wire/test_a.py::test_x[a::b]") == scope_of("tests/unit/wire/test_a.py::test_y")
