"""The file system that loses power, itself: what was synced is always there, and the rest is sometimes not."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.storage.files.disk import SYNCFS_ABOVE, RealDisk
from chaos.forgetful_mount import ForgetfulMount, forgetful_mount

SEEDS = range(40)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulMount]:
    with forgetful_mount(tmp_path / "disk") as mounted:
        yield mounted


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def test_it_is_a_file_system(disk: ForgetfulMount) -> None:
    root = disk.place
    (root / "a" / "b").mkdir(parents=True)
    file = root / "a" / "b" / "file"
    file.write_bytes(b"x" * 300_000)
    with file.open("r+b") as opened:
        opened.seek(100_000)
        opened.write(b"middle")
        opened.seek(0, os.SEEK_END)
        opened.write(b"end")
    assert file.read_bytes() == b"x" * 100_000 + b"middle" + b"x" * 199_994 + b"end"
    os.truncate(file, 5)
    os.truncate(file, 8)
    assert file.read_bytes() == b"xxxxx\0\0\0" and file.stat().st_size == 8
    with pytest.raises(FileExistsError):
        os.open(file, os.O_CREAT | os.O_EXCL)
    with pytest.raises(OSError, match="not empty"):
        (root / "a").rmdir()
    os.rename(root / "a", root / "c")
    with (root / "c" / "b" / "file").open("rb") as opened:
        (root / "c" / "b" / "file").unlink()
        assert opened.read() == b"xxxxx\0\0\0", "open files outlive their names"
    for number in range(500):
        (root / "c" / f"many-{number}").touch()
    assert len(os.listdir(root / "c")) == 501
    shutil.rmtree(root / "c")
    assert os.listdir(root) == []


def test_synced_bytes_and_names_stay(disk: ForgetfulMount) -> None:
    kept = b""
    file = disk.place / "file"
    file.touch()
    sync(disk.place)
    for seed in SEEDS:
        with file.open("r+b") as opened:
            opened.truncate(len(kept))
            opened.seek(len(kept))
            opened.write(b"%d synced " % seed * 500)
            opened.flush()
            os.fdatasync(opened.fileno())
            kept = file.read_bytes()
            opened.write(b"not synced" * 1000)
        disk.cut(seed)
        assert file.read_bytes()[: len(kept)] == kept


def test_what_is_not_synced_is_kept_or_lost(disk: ForgetfulMount) -> None:
    """Each by itself: bytes, sizes, new names, renames, removals."""
    outcomes = set()
    for seed in SEEDS:
        shutil.rmtree(disk.place / "d", ignore_errors=True)
        (disk.place / "d").mkdir()
        for name in ("old", "doomed"):
            (disk.place / "d" / name).touch()
            sync(disk.place / "d" / name)
        sync(disk.place / "d")
        sync(disk.place)
        (disk.place / "d" / "new").write_bytes(b"n" * 10_000)
        (disk.place / "d" / "old").rename(disk.place / "d" / "renamed")
        (disk.place / "d" / "doomed").unlink()
        risked = disk.cut(seed)
        assert risked.files == 1 and risked.names >= 3
        names = set(os.listdir(disk.place / "d"))
        assert ("old" in names) != ("renamed" in names), "a rename is atomic"
        outcomes |= {("new", "new" in names), ("renamed", "renamed" in names), ("doomed", "doomed" in names)}
        if "new" in names:
            data = (disk.place / "d" / "new").read_bytes()
            outcomes |= {("whole", data == b"n" * 10_000), ("zeros", b"\0" in data), ("short", len(data) < 10_000)}
    names = ("new", "renamed", "doomed", "whole", "zeros", "short")
    assert outcomes == {(name, happened) for name in names for happened in (True, False)}


def test_sqlite_keeps_what_it_committed(disk: ForgetfulMount) -> None:
    """A program that is known to sync well, and that writes in the middle of its files."""
    path, rows = disk.place / "meta.db", 0
    for seed in SEEDS:
        db = sqlite3.connect(path)
        for pragma in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            "wal_autocheckpoint = 5",
        ):
            db.execute(f"PRAGMA {pragma}")
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.execute("CREATE TABLE IF NOT EXISTS t (x)")
        sync(disk.place)
        assert db.execute("SELECT count(*) FROM t").fetchone()[0] == rows
        for _ in range(30):
            with db:
                db.execute("INSERT INTO t VALUES (?)", (b"x" * 1000,))
            rows += 1
        # What a killed process would not do, it does when the power is gone already.
        disk.cut(seed)
        db.close()


def test_it_has_no_syncfs_and_the_fallback_syncs_each_file(disk: ForgetfulMount) -> None:
    real = RealDisk(disk.place / "data")
    assert not real._has_syncfs
    count = 2 * SYNCFS_ABOVE
    real.make_dir("many")
    files = [real.create(f"many/{number}") for number in range(count)]
    for file in files:
        file.append([b"x" * 5000])
    real.sync_files(files, ["many", ""])
    for file in files:
        file.close()
    disk.cut(1)
    assert sorted((disk.place / "data" / "many").iterdir()) == sorted(
        disk.place / "data" / "many" / str(number) for number in range(count)
    )
    assert all(path.stat().st_size == 5000 for path in (disk.place / "data" / "many").iterdir())


def test_one_that_lies_about_syncs(tmp_path: Path) -> None:
    lost = 0
    with forgetful_mount(tmp_path / "disk", lies_about=".jnl") as disk:
        for seed in SEEDS:
            for name in ("0.jnl", "0.log"):
                (disk.place / name).write_bytes(b"x" * 10_000)
                sync(disk.place / name)
            sync(disk.place)
            disk.cut(seed)
            assert (disk.place / "0.log").read_bytes() == b"x" * 10_000
            lost += (disk.place / "0.jnl").read_bytes() != b"x" * 10_000
    assert lost > len(SEEDS) / 4


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_fuse_a_desk_skips_and_ci_fails_and_both_name_the_package(
    ci: str, outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match="fusermount3 is not installed .*package fuse3"), forgetful_mount(tmp_path / "a"):
        pass
    refusing = tmp_path / "fusermount3"
    refusing.write_text("#!/bin/sh\necho 'mount failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(outcome, match="Operation not permitted .*package fuse3"), forgetful_mount(tmp_path / "b"):
        pass
