"""Completion scripts: bash is run, the others are checked for every command and option."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cairnmq.cli.completion import Command, bash, fish, walk, zsh
from cairnmq.cli.main import COMMANDS, build_parser


@pytest.fixture(scope="module")
def commands() -> list[Command]:
    return list(walk(build_parser(), ()))


def complete(commands: list[Command], *words: str) -> list[str]:
    script = "\n".join(bash(commands))
    quoted = " ".join(f"'{word}'" for word in ("cairn", *words))
    script += f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _cairn; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",  # away from files it might offer
    )
    return done.stdout.split()


def test_bash_completes_commands_actions_and_options(commands: list[Command]) -> None:
    assert set(complete(commands, "")) >= set(COMMANDS)
    assert complete(commands, "pro") == ["produce"]
    assert complete(commands, "topic", "add") == ["add-partitions"]
    assert complete(commands, "topic", "create", "name", "--if") == ["--if-not-exists"]
    assert complete(commands, "consume", "--exit") == ["--exit-at-end"]
    assert sorted(complete(commands, "completion", ""))[-3:] == ["bash", "fish", "zsh"]


def test_bash_does_not_offer_what_is_refused(commands: list[Command]) -> None:
    assert "--tag" not in complete(commands, "produce", "--")
    assert "shrink" not in complete(commands, "topic", "")


@pytest.mark.parametrize(("shell", "make"), [("zsh", zsh), ("fish", fish), ("bash", bash)])
def test_every_command_and_option_is_in_every_script(shell: str, make: object, commands: list[Command]) -> None:
    assert callable(make)
    script = "\n".join(make(commands))
    for command in commands:
        for word in (*command.children, *command.choices):
            assert word in script
        for option in command.options:
            assert (option.lstrip("-") if shell == "fish" else option) in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)
