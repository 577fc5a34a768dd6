"""Which topics are meant: names, names with wildcards (orders-*), regular expressions (^orders-[0-9]+$). Pure."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from fnmatch import translate

from msgspec import Struct

HELP = "name, name with * and ? as wildcards, or a regular expression that begins with ^"
_WILDCARDS = frozenset("*?[")  # no topic name has one of them
_DIGITS = re.compile("([0-9]+)")


class Choice(Struct, frozen=True):
    """One word of a command line; `pattern` is None for a plain name."""

    text: str
    pattern: re.Pattern[str] | None

    def matches(self, name: str) -> bool:
        return name == self.text if self.pattern is None else self.pattern.search(name) is not None


def parse_choice(text: str) -> Choice:
    """For argparse."""
    try:
        text.encode()
        if text.startswith("^"):
            return Choice(text, re.compile(text))
        return Choice(text, re.compile(translate(text)) if _WILDCARDS & set(text) else None)
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"{text!r} is not UTF-8") from None
    except re.error as wrong:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {wrong}") from None


def chosen(choices: Sequence[Choice], names: Iterable[str]) -> list[str]:
    """In natural order."""
    return sorted((name for name in names if any(choice.matches(name) for choice in choices)), key=natural_order)


def natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key: team-2 before team-10."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)]
