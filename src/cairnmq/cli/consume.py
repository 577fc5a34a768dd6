"""`cairn consume TOPIC...`: prints messages as they come, from wherever they are asked for."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from cairnmq.cli.arguments import (
    add_connection,
    completes,
    connect,
    count,
    examples,
    flattened,
    partitions,
    utf8,
)
from cairnmq.cli.offset_spec import END, FORMS, OffsetSpec, parse_offset
from cairnmq.cli.reader import Reader
from cairnmq.cli.record_filter import Filter, add_filters, passes
from cairnmq.cli.record_format import (
    DEFAULT_FORMAT,
    JSON_HELP,
    TOKENS_HELP,
    Printer,
    compile_format,
    json_line,
)
from cairnmq.cli.subscription import Alone, Joined, Subscription, Topics
from cairnmq.cli.terminal import Progress, write
from cairnmq.cli.topic_choice import HELP, parse_choice

LAST_SECONDS = 3.0  # for the last commit and for leaving the group, each, after SIGTERM


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the value of each message and a newline. Starts at the end unless -o is given."
    completes(
        "topics",
        parser.add_argument("topics", nargs="+", type=parse_choice, metavar="TOPIC", help=f"one or more: {HELP}"),
    )
    parser.add_argument("-o", "--offset", type=parse_offset, default=OffsetSpec(END), metavar="OFFSET", help=FORMS)
    stops = parser.add_mutually_exclusive_group()
    stops.add_argument(
        "--until",
        type=parse_offset,
        metavar="OFFSET",
        help="stop before this offset of each partition, in the same forms: end, N, @TIME, ...",
    )
    stops.add_argument(
        "-e",
        "--exit-at-end",
        dest="until",
        action="store_const",
        const=OffsetSpec(END),
        help="stop at the current end, like --until end",
    )
    parser.add_argument("-n", "--count", type=count, metavar="COUNT", help="stop after COUNT messages")
    parser.add_argument(
        "-p", "--partition", action="append", type=partitions, metavar="P", help="3 or 0,2,5-7 (default: all)"
    )
    completes(
        "groups",
        parser.add_argument(
            "-g",
            "--group",
            type=utf8,
            metavar="GROUP",
            help="join this consumer group, whose members share the partitions; read from its committed offsets (-o "
            "where there are none) and commit what was printed. With -p: commit without joining",
        ),
    )
    add_filters(parser)
    parser.add_argument("--read-committed", action="store_true", help="skip records of aborted and open transactions")
    add_format(parser)
    add_connection(parser)
    examples(
        parser,
        "cairn consume orders",
        "cairn consume orders -o start -e --json",
        "cairn consume orders 'clicks-*' -o -10 -f '%t %p %o %k=%v\\n'",
        "cairn consume orders -o @2026-08-01T12:00:00Z --until @2026-08-01T13:00:00Z --grep 'customer-7'",
        "cairn consume orders -g billing",
    )
    parser.set_defaults(run=run)


def add_format(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    shown = (TOKENS_HELP + f" (default {DEFAULT_FORMAT})").replace("%", "%%")
    forms.add_argument("-f", "--format", dest="printer", type=compile_format, metavar="FORMAT", help=shown)
    forms.add_argument("--json", dest="printer", action="store_const", const=json_line, help=JSON_HELP)
    parser.set_defaults(printer=compile_format(DEFAULT_FORMAT))


def run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _terminate)
    wanted = flattened(arguments.partition)
    with connect(arguments) as client:
        reader = Reader(client, arguments.offset, arguments.until, read_committed=arguments.read_committed)
        topics = Topics(client, arguments.topics)
        subscription: Subscription
        if arguments.group is not None and not wanted:
            subscription = Joined(client, topics, reader, arguments.group)
        else:
            subscription = Alone(client, topics, reader, wanted, arguments.group)
        try:
            # A group that has offsets does not ask -o, and who has given it knows it.
            is_tip_of_use = arguments.group is None and arguments.offset.kind == END
            tip = "-o start reads from the beginning, " if is_tip_of_use else ""
            follow(reader, subscription, arguments.filters, arguments.printer, arguments.count, tip)
        except SystemExit:  # SIGTERM: who sent it does not wait long for a broker that does not respond
            client.timeout = client.patience = min(client.timeout, LAST_SECONDS)
            raise
        finally:
            subscription.close()
    return 0


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """`timeout`, `docker stop` and systemd end it so. As after Ctrl-C, what was printed is committed, and the member
    leaves its group. `timeout` sends the signal twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def follow(
    reader: Reader,
    subscription: Subscription,
    filters: Sequence[Filter],
    printer: Printer,
    limit: int | None,
    tip: str,
) -> None:
    """Prints until the limit or the end; what counts as printed has left this process."""
    left = limit
    hint, read, printed = Progress(), 0, 0
    while left != 0 and not subscription.done:
        quiet = True
        for place, record in reader.read():
            read += 1
            if not passes(filters, record):
                continue
            hint.clear()
            quiet = False
            printed += 1
            write(printer(place.topic, place.partition, record))
            if left is not None:
                left -= 1
                if left == 0:
                    break
        sys.stdout.buffer.flush()
        subscription.step()
        if quiet and left != 0 and not subscription.done:
            matching = f" ({printed:,} of {read:,} read so far match)" if filters else ""
            hint.show(_waiting(reader, matching, tip))
    hint.clear()


def _waiting(reader: Reader, matching: str, tip: str) -> str:
    names = sorted({place.topic for place in reader.positions})
    if not names:
        return "waiting for the group to assign partitions; Ctrl-C stops"
    topics = names[0] if len(names) == 1 else f"{len(names)} topics"
    return f"waiting for new messages in {topics}{matching}; {tip}Ctrl-C stops"
