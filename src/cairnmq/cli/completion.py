"""`cairn completion SHELL`: a completion script, made from the same tree of commands that parses them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.cli.arguments import completed, default_bootstrap, examples
from cairnmq.cli.terminal import write_line

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

SHELLS = ("bash", "zsh", "fish")
NAMES_SECONDS = "1"
_UNQUOTED = frozenset(" \t\n\"'`$\\*?[](){}<>|&;!")  # a name with one of these cannot be offered as a plain word
_FISH_NAMES = """function __cairn_names
    set -l words (commandline -opc)
    set -l bootstrap
    for i in (seq (count $words))
        if contains -- $words[$i] -b --bootstrap
            set bootstrap -b $words[(math $i + 1)]
        end
    end
    command cairn __complete $argv[1] $bootstrap 2>/dev/null
end""".splitlines()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints a completion script."
    examples(
        parser,
        'eval "$(cairn completion bash)"',
        'eval "$(cairn completion zsh)"',
        "cairn completion fish | source",
        remarks="Put the line for your shell into its start file. Names of topics and groups come from "
        "the broker, if it responds within a second (environment: CAIRN_COMPLETION_SECONDS).",
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
    """One node of the tree: the words that lead to it and what may come next. `names` are those that a broker knows,
    of its words and of the values of options."""

    path: tuple[str, ...]
    children: dict[str, str]
    options: tuple[str, ...]
    choices: tuple[str, ...]
    names: str = ""
    option_names: dict[str, str] = {}


def write_names(words: Sequence[str]) -> None:
    """`cairn __complete KIND [-b BOOTSTRAP]`, for the scripts: names one in a line, and nothing if a broker is slow,
    away or of another kind. Whoever presses TAB wants no error."""
    from cairnmq.client.blocking import Client

    kind, bootstrap = words[0], words[2] if words[1:2] == ["-b"] else ""
    patience = float(os.environ.get("CAIRN_COMPLETION_SECONDS", NAMES_SECONDS))
    with Client.connect(bootstrap or default_bootstrap(), client_id="cairn", timeout=patience) as client:
        for name in sorted(_names(client, kind)):
            if not set(name) & _UNQUOTED:
                write_line(name)
        sys.stdout.flush()


def _names(client: Client, kind: str) -> list[str]:
    if kind == "topics":
        return [topic.name for topic in client.metadata(None).topics.values() if not topic.internal]
    if kind == "groups":
        return [listed.group for listed in client.list_groups()]
    if kind == "transactions":
        return [listed.transactional_id for listed in client.list_transactions()]
    from cairnmq.client.admin import BROKER_RESOURCE

    controller = client.describe_cluster().controller
    return [config.name for config in client.describe_configs(BROKER_RESOURCE, str(controller))]


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Command]:
    children: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    options: list[str] = []
    choices: list[str] = []
    names = ""
    option_names: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children = {name: child for name, child in action.choices.items() if name in summaries}
        elif action.help != argparse.SUPPRESS:
            options += action.option_strings
            found = completed(action) or ""
            if action.option_strings:
                option_names |= {flag: found for flag in action.option_strings if found}
            else:
                names = names or found
            if not action.option_strings and action.choices:
                choices += [str(choice) for choice in action.choices]
    yield Command(path, summaries, tuple(options), tuple(choices), names, option_names)
    for name, child in children.items():
        yield from walk(child, (*path, name))


def bash(commands: list[Command]) -> Iterator[str]:
    yield "_cairn() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" path="" word before="" words="" names="" bootstrap=""'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        before="$word"'
    yield '        case "$path $word" in'
    yield from _known_paths(commands, "            ")
    yield "        esac"
    yield "    done"
    yield '    case "$path" in'
    yield from _words_by_path(commands, "        ")
    yield "    esac"
    yield '    case "$path $before" in'
    yield from _names_by_option(commands, "        ")
    yield "    esac"
    yield '    if [[ -n "$names" && "$current" != -* ]]; then'
    # Bash splits words at colons, so the address is looked for in the line.
    yield r'        [[ "$COMP_LINE" =~ (-b|--bootstrap)[\ =]+([^\ ]+) ]] && bootstrap="${BASH_REMATCH[2]}"'
    yield '        words+=" $(cairn __complete "$names" ${bootstrap:+-b "$bootstrap"} 2>/dev/null)"'
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield '    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))'
    yield "}"
    yield "complete -F _cairn cairn"


def zsh(commands: list[Command]) -> Iterator[str]:
    yield "#compdef cairn"
    yield "_cairn() {"
    yield '    local path_="" word words_="" before="" names="" bootstrap=""'
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield '        [[ "$before" == -b || "$before" == --bootstrap ]] && bootstrap="$word"'
    yield '        before="$word"'
    yield '        case "$path_ $word" in'
    yield from (line.replace("path=", "path_=") for line in _known_paths(commands, "            "))
    yield "        esac"
    yield "    done"
    yield '    case "$path_" in'
    yield from (line.replace("words=", "words_=") for line in _words_by_path(commands, "        "))
    yield "    esac"
    yield '    case "$path_ $before" in'
    yield from (line.replace("words=", "words_=") for line in _names_by_option(commands, "        "))
    yield "    esac"
    yield '    if [[ -n "$names" && "${words[CURRENT]}" != -* ]]; then'
    yield '        words_+=" $(cairn __complete "$names" ${bootstrap:+-b} ${bootstrap:+"$bootstrap"} 2>/dev/null)"'
    yield "    fi"
    yield "    compadd -- ${=words_} || _files"
    yield "}"
    yield "compdef _cairn cairn"


def fish(commands: list[Command]) -> Iterator[str]:
    yield from _FISH_NAMES
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
            names = command.option_names.get(option)
            value = f" -x -a '(__cairn_names {names})'" if names else ""
            yield f"complete -c cairn -n '{condition}' {flag}{value}"
        if command.names:
            yield f"complete -c cairn -n '{condition}' -a '(__cairn_names {command.names})'"


def _known_paths(commands: list[Command], indent: str) -> Iterator[str]:
    for command in commands:
        if command.path:
            before, now = "".join(f" {word}" for word in command.path[:-1]), command.path[-1]
            yield f'{indent}"{before} {now}") path="{before} {now}" ;;'


def _words_by_path(commands: list[Command], indent: str) -> Iterator[str]:
    for command in commands:
        words = " ".join([*command.children, *command.choices, *command.options])
        names = f' names="{command.names}"' if command.names else ""
        yield f'{indent}"{"".join(f" {word}" for word in command.path)}") words="{words}"{names} ;;'


def _names_by_option(commands: list[Command], indent: str) -> Iterator[str]:
    """The word before the one to complete may be an option that wants a name."""
    for command in commands:
        for option, names in command.option_names.items():
            path = "".join(f" {word}" for word in command.path)
            yield f'{indent}"{path} {option}") words="" names="{names}" ;;'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
