"""Directories that are not what a start takes them for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.directory_owner import (
    METADATA_FILE,
    MOVED,
    refuse_new_store,
    refuse_other_cluster,
    refuse_start_alone,
)
from cairnmq.broker.start_errors import CannotServe
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.recovery.owner import Owner, write_owner


class Directory:
    """`data`, with the journals in it."""

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        self.path = path
        (path / "journal").mkdir(parents=True)
        self.disks = RealDisk(str(path / "journal")), RealDisk(str(path))
        if owner is not None:
            write_owner(self.disks[0], owner)

    def alone(self) -> str:
        """Why it may not be started without shared metadata; empty: it may."""
        return said(lambda: refuse_start_alone("D", *self.disks))

    def new_store(self) -> str:
        return said(lambda: refuse_new_store("D", "sqlite:c.db", *self.disks))

    def other_cluster(self, cluster_id: str) -> str:
        return said(lambda: refuse_other_cluster("D", "sqlite:c.db", self.disks[0], cluster_id))


def said(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except CannotServe as error:
        return str(error)
    return ""


OF_A_CLUSTER = Owner("a", in_cluster=True)


def test_what_a_node_alone_may_start_on(tmp_path: Path) -> None:
    """Its own metadata, or none at all; that those are lost is for others to say."""
    assert Directory(tmp_path / "new").alone() == ""
    assert Directory(tmp_path / "lost", Owner("a")).alone() == ""
    own = Directory(tmp_path / "own", OF_A_CLUSTER)
    assert "the cluster a, whose brokers share their metadata; add --metadata" in own.alone()
    (own.path / METADATA_FILE).write_bytes(b"")
    assert own.alone() == ""


@pytest.mark.parametrize("sign", [METADATA_FILE + MOVED, "journal/3/replica.json"])
def test_signs_of_a_cluster_in_older_directories(tmp_path: Path, sign: str) -> None:
    directory = Directory(tmp_path / "d", Owner("a"))
    (directory.path / "journal" / "3").mkdir()
    (directory.path / "journal" / journal_segment(3, 0)).write_bytes(b"")
    (directory.path / sign).write_bytes(b"")
    assert "add --metadata" in directory.alone()


def test_a_store_that_does_not_exist_takes_in_who_is_new_or_was_alone(tmp_path: Path) -> None:
    assert Directory(tmp_path / "new").new_store() == ""
    owned = Directory(tmp_path / "owned", Owner("a"))
    assert "--metadata sqlite:c.db does not exist" in owned.new_store()
    (owned.path / METADATA_FILE).write_bytes(b"")
    assert owned.new_store() == ""


def test_a_cluster_of_its_own(tmp_path: Path) -> None:
    assert Directory(tmp_path / "new").other_cluster("b") == ""
    owned = Directory(tmp_path / "owned", Owner("a"))
    assert owned.other_cluster("a") == ""
    assert "belongs to the cluster a, and --metadata sqlite:c.db is that of b" in owned.other_cluster("b")
    assert "is new" in owned.other_cluster("")
