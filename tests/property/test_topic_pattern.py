"""Our expressions over topic names are RE2's: the same ones are refused, and the same names match (ADR 0017)."""

from __future__ import annotations

import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.groups.topic_pattern import InvalidPattern, TopicPattern

NAMES = "abAB01.-_xyz"
# \C (one byte) is left out: RE2 has it, and nobody needs it in a name that is ASCII.
ATOMS = [
    *"ab01.^$-_", "ab", "x-y", "\\.", "\\-", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "\\A", "\\z",
    "[ab]", "[^a]", "[a-c0-2]", "[]a]", "[^]a]", "[a-]", "[-a]", "[\\d.]", "[^\\w]", "[[:alpha:]]", "[[:^digit:]]",
    "[z-a]", "[", "(", ")", "*", "\\", "\\Q.a\\E", "\\x41", "\\x{61}", "\\101", "\\pL", "\\PN", "\\p{Lu}", "\\1", "\\Z",
    "(?i)", "(?-i)", "(?s)", "(?i:aB)", "(?P<n>a)", "(?<n>b)", "(?=a)", "(?U)", "{2}", "{", "}", "",
]  # fmt: skip
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{,2}", "{3,1}", "{1001}", "**"]
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda part: f"({part})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map("".join),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)
OPTIONS = re2.Options()
OPTIONS.log_errors = False


@settings(max_examples=400)
@given(text=expressions, names=st.lists(st.text(NAMES, max_size=6), min_size=1, max_size=8))
def test_what_re2_says(text: str, names: list[str]) -> None:
    try:
        theirs = re2.compile(text, OPTIONS)
    except re2.error:
        theirs = None
    try:
        ours = TopicPattern(text)
    except InvalidPattern:
        ours = None
    assert (ours is None) == (theirs is None), text
    if ours is not None:
        assert [ours.matches(name) for name in names] == [bool(theirs.fullmatch(name)) for name in names], text
