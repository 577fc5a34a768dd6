"""`--watch`: a command's output, shown again and again in place. On a terminal only."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable

from cairnmq.cli import terminal
from cairnmq.cli.arguments import seconds

EVERY_SECONDS = 2.0
_HOME, _CLEAR_LINE, _CLEAR_BELOW = b"\x1b[H", b"\x1b[K", b"\x1b[J"
_CLEAR_ALL = b"\x1b[2J"


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w",
        "--watch",
        nargs="?",
        type=seconds,
        const=EVERY_SECONDS,
        metavar="SECONDS",
        help=f"refresh until Ctrl-C, every {EVERY_SECONDS:g} seconds by default; on a terminal only",
    )


def watched(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command, or with --watch the command over and over."""

    def shown(arguments: argparse.Namespace) -> int:
        if arguments.watch is None:
            return run(arguments)
        if not sys.stdout.isatty():
            raise terminal.UsageError("--watch needs a terminal; without one, run the command again instead")
        if getattr(arguments, "json", False):
            raise terminal.UsageError("--watch shows a table; leave out --json")
        sys.stdout.buffer.write(_CLEAR_ALL)
        while True:
            frame = _frame(lambda: run(arguments))
            sys.stdout.buffer.write(_HOME + frame.replace(b"\n", _CLEAR_LINE + b"\n") + _CLEAR_BELOW)
            sys.stdout.buffer.flush()
            time.sleep(arguments.watch)

    return shown


def _frame(run: Callable[[], int]) -> bytes:
    """What the command wrote, or why it could not: a broker that is away may come back."""
    page = _Page()
    real, sys.stdout = sys.stdout, page
    try:
        run()
    except Exception as failure:
        sentence = terminal.sentence(failure)
        if sentence is None:
            raise
        terminal.write_line(terminal.paint(sentence, terminal.RED, page))
    finally:
        sys.stdout = real
    page.flush()
    return page.written.getvalue()


class _Page(io.TextIOWrapper):
    """Stands in for the terminal while a page is made, so that it is shown at once."""

    def __init__(self) -> None:
        self.written = io.BytesIO()
        super().__init__(self.written, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True
