"""Expressions over topic names: what Python's `re` says where both know a language, and none that never ends."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.groups import topic_pattern
from cairnmq.groups.topic_pattern import InvalidPattern, Patterns, TopicPattern

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "x-y", "[a-c0-2]", "\\.", "^", "$", "\\b", "\\B"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(text=expressions, name=st.text("ab0.x-y_", min_size=1, max_size=8))
def test_the_same_names_as_pythons_own(text: str, name: str) -> None:
    assert TopicPattern(text).matches(name) == bool(re.fullmatch(text, name, re.ASCII))


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("^orders-.*$", ["orders-", "orders-eu"], ["x-orders-eu"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("a(?i:B)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("(?P<team>a|b)[.].*", ["a.x", "b."], ["c.x"]),
        ("[[:alpha:]]+_[[:digit:]]", ["ab_1"], ["a1_1"]),
        ("[]a]", ["a"], ["b"]),
        ("\\Qa.b\\E+", ["a.b", "a.bb"], ["axb"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("\\pL+", ["abC"], ["a1"]),
        ("\\x41", ["A"], ["a"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
        ("[^-._a-z]+", ["ABC9"], ["a", "A.B"]),
    ],
)
def test_what_re2_knows(text: str, matching: list[str], other: list[str]) -> None:
    pattern = TopicPattern(text)
    assert [name for name in matching if not pattern.matches(name)] == []
    assert [name for name in other if pattern.matches(name)] == []


@pytest.mark.parametrize(
    "text",
    ["(", ")", "(a", "[a", "*", "a**", "a{2}{3}", "a{2,1}", "a{1001}", "\\", "\\1", "(?=a)", "(?<=a)b", "(?<!a)b",
     "(?z)", "[b-a]", "[[:none:]]", "\\p{Greek}", "((a{100}){100}){100}", "(" * 200 + ")" * 200, "a" * 5000],
)  # fmt: skip
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(text)


@pytest.mark.parametrize("text", ["(a*)*b", "(a+a+)+b", "(a|aa)*b", "(a?){40}a{40}b"])
def test_expressions_that_make_others_run_for_ever(text: str) -> None:
    pattern = TopicPattern(text)
    started = time.thread_time()
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b") == (not text.startswith("(a?)"))
    assert time.thread_time() - started < 2.0


def test_much_work_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "WORK_MAX", 50)
    patterns = Patterns()
    names = [f"topic-{n}" for n in range(30)]
    rounds = 0
    whole = False
    while not whole:
        found, whole = patterns.matching("topic-.*", names)
        rounds += 1
        assert rounds < 100
    assert found == set(names)
    assert rounds > 3
    assert patterns.matching("topic-.*", names[:2]) == (frozenset(names[:2]), True)


def test_an_expression_that_is_wrong_is_told() -> None:
    patterns = Patterns()
    assert patterns.check("a(") == "a ) is missing"
    assert patterns.check("a.*") is None
    assert patterns.check("a.*") is None, "and is remembered"


def test_names_that_come_and_go() -> None:
    patterns = Patterns()
    assert patterns.matching("a.*", {"a1": 0, "b1": 0}) == ({"a1"}, True)
    assert patterns.matching("a.*", {"a1": 0, "a2": 0, "b2": 0}) == ({"a1", "a2"}, True)
    assert patterns.matching("a.*", {"a2": 0}) == ({"a2"}, True)


def test_only_so_many_expressions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "KEPT_MAX", 3)
    patterns = Patterns()
    for number in range(10):
        assert patterns.matching(f"t{number}", [f"t{number}"]) == ({f"t{number}"}, True)
    assert len(patterns._compiled) == len(patterns._known) == 3
    assert patterns.matching("t0", ["t0", "t1"]) == ({"t0"}, True)
