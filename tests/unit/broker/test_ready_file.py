"""The file that says ready appears whole, and an old one goes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cairnmq.broker.options import Address
from cairnmq.broker.ready_file import announce, remove_ready_file
from cairnmq.broker.start_errors import CannotServe


def test_line_and_file_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announce("h:1", Address("127.0.0.1", 80), str(tmp_path / "ready"))
    assert json.loads((tmp_path / "ready").read_text()) == {
        "bootstrap": "h:1",
        "http": "http://127.0.0.1:80",
        "pid": os.getpid(),
    }
    announce("h:1", None, None)
    lines = [f"cairn ready bootstrap=h:1 http={http} pid={os.getpid()}" for http in ("http://127.0.0.1:80", "-")]
    assert capsys.readouterr().out.splitlines() == lines
    assert os.listdir(tmp_path) == ["ready"]


def test_an_old_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    remove_ready_file(str(tmp_path / "ready"))
    remove_ready_file(str(tmp_path / "ready"))
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for call in (remove_ready_file, lambda path: announce("h:1", None, path)):
        with pytest.raises(CannotServe, match="--ready-file .*/file/ready"):
            call(str(tmp_path / "file" / "ready"))
