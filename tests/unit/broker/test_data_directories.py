"""Where data lies, and who may write there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.data_directories import DataDirectories, lock_directories
from cairnmq.broker.options import ServeOptions
from cairnmq.broker.start_errors import CannotServe


def test_journals_lie_beside_the_data_unless_they_have_a_disk_of_their_own() -> None:
    assert DataDirectories.of(ServeOptions(data="d")) == DataDirectories("d/journal", "d")
    assert DataDirectories.of(ServeOptions(data="d", journal_dir="j")) == DataDirectories("j", "d")


def test_both_directories_are_made_and_locked(tmp_path: Path) -> None:
    options = ServeOptions(data=str(tmp_path / "d"), journal_dir=str(tmp_path / "j"))
    locks = lock_directories(options)
    assert [lock.path for lock in locks] == [str(tmp_path / "d"), str(tmp_path / "j")]
    for lock in locks:
        lock.close()


@pytest.mark.parametrize("flag", ["--data", "--journal-dir"])
def test_a_file_in_their_place_is_named_with_its_flag(tmp_path: Path, flag: str) -> None:
    (tmp_path / "file").touch()
    place, other = str(tmp_path / "file"), str(tmp_path / "d")
    options = ServeOptions(data=place) if flag == "--data" else ServeOptions(data=other, journal_dir=place)
    with pytest.raises(CannotServe, match=f"{flag} .*file is a file"):
        lock_directories(options)
