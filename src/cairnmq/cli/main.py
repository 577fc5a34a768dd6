"""Entry point of `cairn`: finds the command, loads only its module, and turns every outcome into an exit code.

0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword

from cairnmq import __version__, kernels
from cairnmq.cli import terminal

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "serve": "run a broker",
    "topic": "create, list, describe, delete, alter, add-partitions, trim",
    "produce": "send lines as messages",
    "consume": "print messages",
    "group": "list, describe, reset, delete",
    "cluster": "info, health",
    "get": "print one message by its offset",
    "dump": "print a journal, queue log, index or checkpoint file as text",
    "verify": "check a data directory offline",
    "import": "read Apache Kafka's log directories into a running broker",
    "bench": "measure a broker: produce, consume, e2e, sweep",
    "demo": "a broker with topics and live traffic to look at",
    "completion": "print a shell's completion script",
}
LATER = ("lake", "sql", "search")


class _Version(argparse.Action):
    """Looks for the kernels only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"cairn {__version__} ({kernels.summary()})")
        parser.exit()


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The tree of commands; with `only`, the arguments of just that one are loaded."""
    parser = argparse.ArgumentParser(
        prog="cairn",
        description="CairnMQ: a message queue that speaks the Kafka protocol.",
        epilog=f"`cairn COMMAND -h` explains each. With a later release: {', '.join(LATER)}.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version, and what it runs on")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if only in (None, name):
            module = f"{name}_" if iskeyword(name) else name
            import_module(f"cairnmq.cli.{module}").configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command in LATER:
        terminal.error(f"`cairn {command}` comes with a later release")
        return USAGE
    code: int = DONE
    try:
        chosen = build_parser(command).parse_args(arguments)
        code = chosen.run(chosen)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has seen enough; what was found out by then holds. Python would complain again when it closes
        # stdout, so give it another one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except terminal.UsageError as wrong:
        terminal.error(str(wrong))
        return USAGE
    except Exception as failure:
        sentence = terminal.sentence(failure)
        if sentence is None:
            raise
        terminal.error(sentence)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
