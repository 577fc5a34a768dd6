"""What is suggested for a name that does not exist, and that nothing is where nothing is near."""

from __future__ import annotations

import argparse

import pytest

from cairnmq.cli.main import build_parser
from cairnmq.cli.near_misses import ELSEWHERE, meant_by

COMMANDS = ["serve", "topic", "cluster", "get", "--version", "-h"]


def names(parser: argparse.ArgumentParser) -> set[str]:
    """Of every command, action and option."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, choice in action.choices.items():
                found |= {name} | names(choice)
    return found


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("serv", "serve"),
        ("tpoic", "topic"),
        ("gte", "get"),
        ("status", "cluster"),
        ("user", None),
        ("stop", None),
        ("h", None),
        ("--versoin", "--version"),
        ("--serve", None),
    ],
)
def test_the_nearest_name_if_one_is_near(word: str, meant: str | None) -> None:
    assert meant_by(word, COMMANDS) == meant


def test_the_first_meaning_that_exists() -> None:
    assert meant_by("ls", ["list", "delete"]) == "list"
    assert meant_by("ls", ["topic", "group"]) == "topic list"
    assert meant_by("seek", ["list", "delete"]) is None


def test_all_that_is_suggested_exists() -> None:
    known = names(build_parser())
    suggested = {word for meanings in ELSEWHERE.values() for meaning in meanings for word in meaning.split()}
    assert suggested - known == {"start", "debug"}, "values of -o and --log-level"
