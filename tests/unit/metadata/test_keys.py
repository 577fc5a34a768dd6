"""Free texts in keys."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.metadata.keys import level, unlevel


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@example("a/b")
@example(".")
@example("..")
@example("%2E")
def test_any_text_is_one_level_and_comes_back(text: str) -> None:
    key = level(text)
    assert unlevel(key) == text
    assert key.isascii() and not set(key) & set("/,:\0") and key not in (".", "..")
