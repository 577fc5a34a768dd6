"""Help pages: each has examples, and each example is a command line that works as far as parsing goes."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from cairnmq.cli.main import build_parser


def pages(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command and action that help offers, by its words."""
    found = {parser.prog: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                found |= pages(action.choices[choice.dest])
    return found


PARSER = build_parser()
PAGES = pages(PARSER)


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    _, _, shown = parser.format_help().partition("examples:\n")
    return [line.strip() for line in shown.splitlines()]


def commands_in(line: str) -> list[list[str]]:
    """The calls of cairn in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    calls: list[list[str]] = [[]]
    for word in lexer:
        inner = re.fullmatch(r"\$\((.*)\)", word)
        if inner is not None:
            calls += commands_in(inner[1])
        elif word == "|":
            calls.append([])
        else:
            calls[-1].append(word)
    return [call for call in calls if call[:1] == ["cairn"]]


def test_there_are_pages_for_actions_of_actions() -> None:
    assert {"cairn", "cairn topic create", "cairn group offsets delete", "cairn bench e2e"} <= PAGES.keys()


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_examples_of_itself(page: str) -> None:
    lines = examples_of(PAGES[page])
    assert lines and all(len(line) < 118 for line in lines)
    calls = [" ".join(call) for line in lines for call in commands_in(line)]
    assert calls and all(call.startswith(page) for call in calls)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in examples_of(PAGES[page])])
def test_every_example_parses(page: str, line: str) -> None:
    for _, *words in commands_in(line):
        assert callable(PARSER.parse_args(words).run)


@pytest.mark.parametrize("page", PAGES)
def test_no_page_advertises_what_does_not_exist(page: str) -> None:
    text = PAGES[page].format_help().lower()
    assert "later" not in text
    for action in PAGES[page]._actions:
        assert action.help or not action.option_strings, f"{action.option_strings} is not explained"
