"""Which records `cairn consume --grep` prints. Pure."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence

from cairnmq.codec.records import Record

Filter = Callable[[Record], bool]


def add_filters(parser: ArgumentParser) -> None:
    for flag, make, where in (
        ("--grep", in_either, "key or value"),
        ("--grep-key", in_key, "key"),
        ("--grep-value", in_value, "value"),
    ):
        text = f"print only messages with a match of REGEX in {where}; repeatable: all must match"
        parser.add_argument(
            flag, dest="filters", action="append", type=_parser(make), default=[], metavar="REGEX", help=text
        )


def passes(filters: Sequence[Filter], record: Record) -> bool:
    return all(each(record) for each in filters)


def in_key(pattern: re.Pattern[bytes]) -> Filter:
    return lambda record: record.key is not None and pattern.search(record.key) is not None


def in_value(pattern: re.Pattern[bytes]) -> Filter:
    return lambda record: record.value is not None and pattern.search(record.value) is not None


def in_either(pattern: re.Pattern[bytes]) -> Filter:
    key, value = in_key(pattern), in_value(pattern)
    return lambda record: key(record) or value(record)


def _parser(make: Callable[[re.Pattern[bytes]], Filter]) -> Callable[[str], Filter]:
    def parse(text: str) -> Filter:
        try:
            return make(re.compile(text.encode("utf-8", "surrogateescape")))
        except re.error as wrong:
            raise ArgumentTypeError(f"{text!r} is not a regular expression: {wrong}") from None

    return parse
