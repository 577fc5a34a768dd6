"""Pieces of command lines that several commands share, and the connection they ask for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cairnmq.cli.terminal import UsageError

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
PARTITIONS_MAX = 1_000_000  # of one topic, in a command line; brokers have limits of their own
REPLICAS_MAX = 2**15 - 1
HANGING_SECONDS = 5.0  # one broker that hangs must not keep the others' answers from a person
_COMPLETES = "cairn_completes"


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        default=default_bootstrap(),
        help=f"broker to ask first (environment: CAIRN_BOOTSTRAP; default {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS", help="give up on the broker after this (default 30)"
    )


def default_bootstrap() -> str:
    return os.environ.get("CAIRN_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def connect(arguments: argparse.Namespace, *, patient: bool = True) -> Client:
    """Not `patient`: of several addresses, one that is silent is left soon. What it was asked, another one is."""
    from cairnmq.client.blocking import Client, parse_bootstrap
    from cairnmq.client.errors import ClientError

    try:
        parse_bootstrap(arguments.bootstrap)
    except ClientError as wrong:
        raise UsageError(str(wrong)) from None
    alone = patient or "," not in arguments.bootstrap
    timeout = arguments.timeout if alone else min(arguments.timeout, HANGING_SECONDS)
    return Client.connect(arguments.bootstrap, client_id="cairn", timeout=timeout, patience=arguments.timeout)


def examples(parser: argparse.ArgumentParser, *lines: str, remarks: str = "") -> None:
    """Every help page ends with some; tests parse each."""
    shown = "\n".join(["examples:", *(f"  {line}" for line in lines)])
    parser.epilog = f"{remarks}\n\n{shown}" if remarks else shown


def completes(names: str, action: argparse.Action) -> None:
    """Says that a shell can offer the broker's names for it: `topics`, `groups`, `settings` or `transactions`."""
    setattr(action, _COMPLETES, names)


def completed(action: argparse.Action) -> str | None:
    found: str | None = getattr(action, _COMPLETES, None)
    return found


def add_topics(parser: argparse.ArgumentParser, **options: Any) -> None:
    """One or more names of topics."""
    completes("topics", parser.add_argument("names", nargs="+", type=utf8, metavar="TOPIC", **options))


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_later(parser: argparse.ArgumentParser, *flags: str) -> None:
    """Flags that are known and not built yet: refused with a sentence instead of ignored."""
    for flag in flags:
        parser.add_argument(flag, action=_Later, help=argparse.SUPPRESS)


class _Later(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} comes with a later release")


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and below 1,000,000")
    return number


def utf8(text: str) -> str:
    """Names of topics, groups and settings: the shell may give bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def partition_count(text: str) -> int:
    return _at_most(count(text), PARTITIONS_MAX)


def replica_count(text: str) -> int:
    return _at_most(count(text), REPLICAS_MAX)


def _at_most(number: int, most: int) -> int:
    if number > most:
        raise argparse.ArgumentTypeError(f"{number} is more than {most}")
    return number


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def partitions(text: str) -> list[int]:
    """`3` or `0,2,5-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = natural(first), natural(last if dash else first)
        if low > high:
            raise argparse.ArgumentTypeError(f"{part!r} counts backwards")
        _at_most(high, PARTITIONS_MAX)
        found.extend(range(low, high + 1))
    return found


def one_of(names: Sequence[str], what: str) -> Callable[[str], str]:
    """In any case, as brokers compare them."""

    def parse(text: str) -> str:
        for name in names:
            if name.lower() == text.lower():
                return name
        raise argparse.ArgumentTypeError(f"unknown {what} {text!r}: use {', '.join(names)}")

    return parse


def setting(text: str) -> tuple[str, str]:
    """`name=value`; the value may be empty and may hold further equals signs."""
    key, equals, value = utf8(text).partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return key.strip(), value


def flattened(lists: Sequence[Sequence[int]] | None) -> list[int]:
    """The partitions of a repeatable -p, each once, in order; empty when it was not given."""
    return sorted({index for part in lists or () for index in part})
