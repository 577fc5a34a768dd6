"""Topics by name, wildcard and regular expression, and their order."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from cairnmq.cli.topic_choice import chosen, natural_order, parse_choice

NAMES = ["orders", "orders-10", "orders-2", "old.orders", "clicks"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["orders"], ["orders"]),
        (["orders-*"], ["orders-2", "orders-10"]),
        (["orders-?"], ["orders-2"]),
        (["*orders"], ["old.orders", "orders"]),
        (["^orders"], ["orders", "orders-2", "orders-10"]),
        (["^orders-[0-9]$", "clicks"], ["clicks", "orders-2"]),
        (["order"], []),
    ],
)
def test_choices(words: list[str], found: list[str]) -> None:
    assert chosen([parse_choice(word) for word in words], NAMES) == found


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="is not a regular expression"):
        parse_choice("^orders-[")


def test_numbers_count_as_numbers() -> None:
    names = ["t-10", "t-9", "t", "t-9-b", "t-9-a10", "t-9-a9", "10", "9"]
    ordered = ["9", "10", "t", "t-9", "t-9-a9", "t-9-a10", "t-9-b", "t-10"]
    assert sorted(names, key=natural_order) == ordered
