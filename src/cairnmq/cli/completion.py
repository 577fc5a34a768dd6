"""`cairn completion SHELL`: a completion script, made from the same tree of commands that parses them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from msgspec import Struct

from cairnmq.cli.terminal import write_line

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints a completion script."
    parser.epilog = "\n".join(
        [
            'bash: eval "$(cairn completion bash)"',
            'zsh:  eval "$(cairn completion zsh)"',
            "fish: cairn completion fish | source",
        ]
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.main import build_parser

    commands = list(walk(build_parser(), ()))
    make = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    for line in make(commands):
        write_line(line)
    sys.stdout.flush()
    return 0


class Command(Struct, frozen=True):
    """One node of the tree: the words that lead to it and what may come next."""

    path: tuple[str, ...]
    children: dict[str, str]
    options: tuple[str, ...]
    choices: tuple[str, ...]


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Command]:
    children: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    options: list[str] = []
    choices: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children = {name: child for name, child in action.choices.items() if name in summaries}
        elif action.help != argparse.SUPPRESS:
            options += action.option_strings
            if not action.option_strings and action.choices:
                choices += [str(choice) for choice in action.choices]
    yield Command(path, summaries, tuple(options), tuple(choices))
    for name, child in children.items():
        yield from walk(child, (*path, name))


def bash(commands: list[Command]) -> Iterator[str]:
    yield "_cairn() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" path="" word'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        case "$path $word" in'
    yield from _known_paths(commands, "            ")
    yield "        esac"
    yield "    done"
    yield '    local words=""'
    yield '    case "$path" in'
    yield from _words_by_path(commands, "        ")
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield '    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))'
    yield "}"
    yield "complete -F _cairn cairn"


def zsh(commands: list[Command]) -> Iterator[str]:
    yield "#compdef cairn"
    yield "_cairn() {"
    yield '    local path_="" word words_=""'
    yield '    for word in "${words[@]:1:CURRENT-2}"; do'
    yield '        case "$path_ $word" in'
    yield from (line.replace("path=", "path_=") for line in _known_paths(commands, "            "))
    yield "        esac"
    yield "    done"
    yield '    case "$path_" in'
    yield from (line.replace("words=", "words_=") for line in _words_by_path(commands, "        "))
    yield "    esac"
    yield "    compadd -- ${=words_} || _files"
    yield "}"
    yield "compdef _cairn cairn"


def fish(commands: list[Command]) -> Iterator[str]:
    yield "complete -c cairn -f"
    for command in commands:
        seen = [f"__fish_seen_subcommand_from {word}" for word in command.path]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(command.children)}"] if command.children else []
        condition = "; and ".join([*seen, *unseen]) or "true"
        for name, summary in command.children.items():
            yield f"complete -c cairn -n '{condition}' -a {name} -d '{_quoted(summary)}'"
        for choice in command.choices:
            yield f"complete -c cairn -n '{condition}' -a {choice}"
        for option in command.options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            yield f"complete -c cairn -n '{condition}' {flag}"


def _known_paths(commands: list[Command], indent: str) -> Iterator[str]:
    for command in commands:
        if command.path:
            before, now = "".join(f" {word}" for word in command.path[:-1]), command.path[-1]
            yield f'{indent}"{before} {now}") path="{before} {now}" ;;'


def _words_by_path(commands: list[Command], indent: str) -> Iterator[str]:
    for command in commands:
        words = " ".join([*command.children, *command.choices, *command.options])
        yield f'{indent}"{"".join(f" {word}" for word in command.path)}") words="{words}" ;;'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
