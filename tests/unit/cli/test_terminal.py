"""Tables, colours and progress: where they appear and where they must not."""

from __future__ import annotations

import io
import os

import pytest

from cairnmq.cli.terminal import RED, Progress, lay_out, paint


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert lay_out(("NAME", "N"), [["a", "5"], ["long-name", "12345"]]) == [
        "NAME           N",
        "a              5",
        "long-name  12345",
    ]


def test_a_table_without_rows_is_its_headings() -> None:
    assert lay_out(("NAME", "N"), []) == ["NAME  N"]


def test_colours_only_on_a_terminal_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert paint("x", RED, Screen()) == "\x1b[31mx\x1b[0m"
    assert paint("x", RED, io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", RED, Screen()) == "x"


def test_progress_is_for_terminals() -> None:
    screen, file = Screen(), io.StringIO()
    for stream in (screen, file):
        progress = Progress(stream)
        progress.show("10 %")
        progress.show("11 %")
        progress.clear()
    assert screen.getvalue() == "\r10 %\x1b[K\r\x1b[K"
    assert file.getvalue() == ""


def test_progress_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps is not overwritten: each second left another one on the screen."""
    columns = 20
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    monkeypatch.setattr(Screen, "fileno", lambda _: 2)
    for text, shown in (("x" * 19, "x" * 19), ("x" * 20, "x" * 18 + "…")):
        screen = Screen()
        Progress(screen).show(text)
        assert screen.getvalue() == f"\r{shown}\x1b[K"
    columns = 0  # a terminal that does not say it
    screen = Screen()
    Progress(screen).show("x" * 100)
    assert "x" * 100 in screen.getvalue()
