"""Java's properties notation."""

from __future__ import annotations

import pytest

from cairnmq.settings.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1", [(1, "a", "1")]),
        ("# c\n\n! d\n  a = 1 \n", [(4, "a", "1 ")]),
        ("a: 1\nb 2\nc", [(1, "a", "1"), (2, "b", "2"), (3, "c", "")]),
        ("a=x=y:z", [(1, "a", "x=y:z")]),
        ("a=1,\\\n   2,\\\n   3\nb=4", [(1, "a", "1,2,3"), (4, "b", "4")]),
        ("a=1\\\\\nb=2", [(1, "a", "1\\"), (2, "b", "2")]),
        ("a\\=b=c\\tд\\u0041", [(1, "a=b", "c\tдA")]),
        ("a\\ b : c", [(1, "a b", "c")]),
        ("a=\\", [(1, "a", "")]),
        ("a=1\r\nb=2\r\n", [(1, "a", "1"), (2, "b", "2")]),
        ("a=# no comment", [(1, "a", "# no comment")]),
        ("", []),
    ],
)
def test_parse(text: str, wanted: list[tuple[int, str, str]]) -> None:
    assert list(parse_properties(text)) == wanted
