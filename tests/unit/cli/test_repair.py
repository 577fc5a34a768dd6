"""`cairn repair`: what it says before it does anything, what it refuses, and that nothing is changed then."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.cli.main import main
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.storage.files.disk import RealDisk, lock_all
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.types import Counters
from unit.storage.data_directory import worn

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory whose checkpoint is zeroed."""
    root = worn(tmp_path / "data")
    checkpoint = newest(root)
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
    return root


def newest(root: Path) -> Path:
    return max((root / "checkpoints").glob("*.ckpt"))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


def refused(root: Path, capsys: Capture, *more: str) -> str:
    before = contents(root)
    assert main(["repair", str(root), "--yes", *more]) == 1
    assert contents(root) == before
    return capsys.readouterr().err


def test_it_repairs_and_tells_where_the_old_file_is(damaged: Path, capsys: Capture) -> None:
    old = newest(damaged).read_bytes()
    assert main(["verify", str(damaged)]) == 1
    assert f"`cairn repair {damaged}` rebuilds it" in capsys.readouterr().out
    assert main(["repair", str(damaged), "--yes"]) == 0
    said = capsys.readouterr()
    assert "problem: checkpoint file" in said.out and "plan: rebuild the checkpoint for 3 partitions" in said.out
    assert f"The old files are in {damaged}/lost/repair-1" in said.err
    assert (damaged / "lost" / "repair-1" / "checkpoints" / newest(damaged).name).read_bytes() == old
    assert main(["verify", str(damaged)]) == 0
    assert main(["repair", str(damaged)]) == 0
    assert "is intact" in capsys.readouterr().err


def test_without_a_terminal_and_without_yes_it_only_says_what_it_would_do(damaged: Path, capsys: Capture) -> None:
    before = contents(damaged)
    command = [sys.executable, "-m", "cairnmq.cli.main", "repair", str(damaged)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "plan: " in done.stdout
    assert f"nothing was changed. `cairn repair {damaged} --yes` does it." in done.stderr
    assert contents(damaged) == before


@pytest.mark.parametrize(("reply", "code"), [(b"y\n", 0), (b"\n", 1), (b"no\n", 1)])
def test_on_a_terminal_it_asks(damaged: Path, reply: bytes, code: int) -> None:
    before = contents(damaged)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, reply)
        command = [sys.executable, "-m", "cairnmq.cli.main", "repair", str(damaged)]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=120, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code and "Continue? [y/N]" in done.stderr
    assert (contents(damaged) == before) is bool(code)
    assert ("nothing was changed" in done.stderr) is bool(code)


def test_a_directory_in_use_is_refused(damaged: Path, capsys: Capture) -> None:
    (held,) = lock_all([str(damaged)])
    try:
        assert "is in use by process" in refused(damaged, capsys)
    finally:
        held.close()


def test_journals_in_use_are_refused(damaged: Path, capsys: Capture) -> None:
    (held,) = lock_all([str(damaged / "journal")])
    try:
        assert "is in use by process" in refused(damaged, capsys)
    finally:
        held.close()


@pytest.mark.parametrize("command", [("repair", "--yes"), ("verify",)], ids=lambda command: command[0])
def test_python_without_asserts_is_refused(damaged: Path, command: tuple[str, ...]) -> None:
    """As `cairn serve` refuses it: asserts are checks of invariants."""
    before = contents(damaged)
    name, *more = command
    program = [sys.executable, "-O", "-m", "cairnmq", name, str(damaged), *more]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "removes the checks" in done.stderr and "Traceback" not in done.stderr
    assert contents(damaged) == before


def test_without_metadata_nobody_knows_the_topics(damaged: Path, capsys: Capture) -> None:
    for path in damaged.glob("meta.db*"):
        path.unlink()
    assert "meta.db is missing" in refused(damaged, capsys)


def test_damaged_metadata_are_refused(damaged: Path, capsys: Capture) -> None:
    (damaged / "meta.db").write_bytes(b"x" * 8192)
    assert "meta.db" in refused(damaged, capsys)


def test_the_directory_of_the_journals_must_be_there(damaged: Path, capsys: Capture) -> None:
    said = refused(damaged, capsys, "--journal-dir", str(damaged / "elsewhere"))
    assert "give the directory of the journals with --journal-dir" in said


def test_journals_of_another_cluster_are_refused(damaged: Path, capsys: Capture) -> None:
    with closing(SqliteStore(str(damaged / "meta.db"))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        catalog.name_cluster("mine")
    write_owner(RealDisk(damaged / "journal"), Owner("another", 1, Counters()))
    assert "belong to the cluster another" in refused(damaged, capsys)


def test_empty_journals_are_refused(damaged: Path, tmp_path: Path, capsys: Capture) -> None:
    newest(damaged).unlink()
    (tmp_path / "empty").mkdir()
    assert "holds no journals" in refused(damaged, capsys, "--journal-dir", str(tmp_path / "empty"))


def test_a_newer_version_is_refused(damaged: Path, capsys: Capture) -> None:
    write_owner(RealDisk(damaged / "journal"), Owner("any", 99, Counters()))
    assert "a newer version of CairnMQ wrote these directories" in refused(damaged, capsys)


def test_a_sync_that_failed_is_refused(damaged: Path, capsys: Capture) -> None:
    (damaged / "doubt").touch()
    assert "says that a sync failed" in refused(damaged, capsys)


def test_its_help_has_an_example(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["repair", "--help"])
    assert "cairn repair /var/lib/cairn --journal-dir" in capsys.readouterr().out
