"""Small argument forms."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from cairnmq.cli.arguments import flattened, one_of, partitions, seconds, setting


def test_partitions() -> None:
    assert partitions("3") == [3]
    assert partitions("0,2,5-7") == [0, 2, 5, 6, 7]
    assert flattened([[5, 1], [1]]) == [1, 5]
    assert flattened(None) == []


@pytest.mark.parametrize("text", ["", "a", "1,", "3-1", "-1", "1-2-3"])
def test_what_is_no_list_of_partitions(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        partitions(text)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "1e9"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"'{text}' is not a number of seconds above 0"):
        seconds(text)


def test_one_of_some_names() -> None:
    parse = one_of(("Empty", "Stable"), "state")
    assert parse("stable") == parse("Stable") == "Stable"
    with pytest.raises(ArgumentTypeError, match="unknown state 'open': use Empty, Stable"):
        parse("open")


def test_settings() -> None:
    assert setting("a.b=c=d") == ("a.b", "c=d")
    assert setting("a=") == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(ArgumentTypeError, match="NAME=VALUE"):
            setting(text)
