"""Entry point of `cairn`: finds the command, loads only its module, and turns every outcome into an exit code.

0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

from cairnmq import __version__, kernels
from cairnmq.cli import terminal

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "serve": "run a broker",
    "topic": "create, list, describe, delete, alter, add-partitions, trim",
    "produce": "send lines as messages",
    "consume": "print messages",
    "group": "list, describe, reset, delete, offsets",
    "cluster": "info, health, brokers, journals, disks, elect, forget",
    "config": "list, get, set, unset: settings of brokers",
    "txn": "list, describe, abort: transactions",
    "get": "print one message by its offset",
    "dump": "print a journal, queue log, index or checkpoint file as text",
    "verify": "check data directories offline, and compare replicas",
    "repair": "rebuild a damaged checkpoint offline",
    "import": "read Apache Kafka's log directories into a running broker",
    "bench": "measure a broker: produce, consume, e2e, sweep",
    "demo": "run a broker with sample topics and live traffic",
    "completion": "print a shell's completion script",
}
NAMES_COMMAND = "__complete"  # asked by completion scripts, not by people
LATER = ("lake", "sql", "search")
EXAMPLES = """examples:
  cairn serve
  echo hello | cairn produce greetings
  cairn consume greetings -o start
  cairn demo"""


class _Version(argparse.Action):
    """Looks for the kernels only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"cairn {__version__} ({kernels.summary()})")
        parser.exit()


class Pages(argparse.HelpFormatter):
    """Wraps paragraphs, and leaves lines alone where there are several: examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if "\n" in part else fill(part, width, indent) for part in text.split("\n\n"))


def _may_be_first(word: str, known: Iterable[str]) -> bool:
    """A command, or an option of `cairn` itself, perhaps shortened. argparse would take what follows for a command."""
    return not word.startswith("-") or any(option.startswith(word) for option in known)


class Parser(argparse.ArgumentParser):
    """One that suggests the nearest name for a command, action or option that does not exist."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Pages, **options})
        self.set_defaults(parser=self)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args and not _may_be_first(args[0], self._option_string_actions):
            self.error(self._surplus(args[0]))
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            used = getattr(found, "parser", self)
            used.error(used._surplus(unknown[0]) or f"unknown argument {unknown[0]!r}{getattr(found, 'surplus', '')}")
        return found

    def error(self, message: str) -> NoReturn:
        """A sentence, not the whole usage: that is what -h is for. Without an action there is nothing else to say."""
        if message in {f"the following arguments are required: {each.metavar}" for each in self._choices()}:
            self.print_help(sys.stderr)
            self.exit(USAGE)
        label = terminal.paint(f"{self.prog}:", terminal.RED, sys.stderr)
        self.exit(USAGE, f"{label} {message}\nSee `{self.prog} -h`.\n")

    def _choices(self) -> list[argparse.Action]:
        """Its actions, if it has any: `create`, `list` and so on."""
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def _surplus(self, written: str) -> str:
        """About an option that does not exist; empty if it is none."""
        from cairnmq.cli.near_misses import meant_by

        word = written.partition("=")[0]
        if not word.startswith("-"):
            return ""
        places = [str(action.metavar) for action in self._actions if not action.option_strings]
        for place in places:
            if word in (f"--{place.lower()}", f"-{place[0].lower()}"):
                return f"unknown option {word!r}; just write `{self.prog} {' '.join(places)}`"
        meant = meant_by(word, self._option_string_actions)
        if meant is None and self._choices():
            return f"unknown option {word!r}; options come last, as in `cairn topic list -b HOST:PORT`"
        return f"unknown option {word!r}" + (f"; did you mean {meant}?" if meant else "")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from cairnmq.cli.near_misses import meant_by

            known = [choice.dest for choice in action._choices_actions]
            meant = meant_by(str(value), [*known, *self._option_string_actions])
            near = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            self.error(f"unknown {str(action.metavar or 'command').lower()} {value!r}; {near}")
        super()._check_value(action, value)


def build_parser(only: str | None = None) -> Parser:
    """The tree of commands; with `only`, the arguments of just that one are loaded."""
    parser = Parser(
        prog="cairn",
        description="CairnMQ: a message queue that speaks the Kafka protocol.",
        epilog="`cairn COMMAND -h` explains each.\n\n" + EXAMPLES,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and the kernels in use")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if only in (None, name):
            module = f"{name}_" if iskeyword(name) else name
            import_module(f"cairnmq.cli.{module}").configure(command)
    return parser


def write_names(words: list[str]) -> int:
    """For completion scripts: whatever goes wrong, there is just nothing to offer."""
    from cairnmq.cli import completion

    with suppress(Exception):
        completion.write_names(words)
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if arguments[:1] == [NAMES_COMMAND]:
        return write_names(arguments[1:])
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command in LATER:
        terminal.error(f"`cairn {command}` comes with a later release")
        return USAGE
    code: int = DONE
    try:
        if not arguments:
            build_parser("").print_help()
            return DONE
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
