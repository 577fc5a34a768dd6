"""Directories that are not what a start takes them for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.directory_owner import (
    METADATA_FILE,
    MOVED,
    refuse_new_store,
    refuse_other_broker,
    refuse_other_cluster,
    refuse_start_alone,
)
from cairnmq.broker.start_errors import CannotServe
from cairnmq.metadata.cluster_records import BrokerEntry
from cairnmq.replication.records import BrokerRecord, FormerDirectory
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

    def other_broker(self, node_id: int, *brokers: BrokerEntry, was_alone: bool = False) -> str:
        known = {each.record.broker: each for each in brokers}
        return said(lambda: refuse_other_broker("D", node_id, self.disks[0], known, was_alone=was_alone))

    def other_cluster(self, cluster_id: str) -> str:
        return said(lambda: refuse_other_cluster("D", "sqlite:c.db", self.disks[0], cluster_id))


def said(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except CannotServe as error:
        return str(error)
    return ""


def entry(broker: int, directory: str, *former: str) -> BrokerEntry:
    past = tuple(FormerDirectory(name, 1, 2, frozenset()) for name in former)
    return BrokerEntry(BrokerRecord(broker, 5, former=past), "h", 1, "h", 2, None, directory)


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


def test_the_directory_of_another_broker(tmp_path: Path) -> None:
    """By its name in the metadata, and by the ids that it was written under."""
    assert Directory(tmp_path / "new").other_broker(7, entry(1, "a")) == ""
    one = Directory(tmp_path / "one", Owner("c", nodes=(1,), directory="a"))
    assert one.other_broker(1, entry(1, "a"), entry(7, "b")) == ""
    assert "--data D is that of broker 1: use --node-id 1, or give the directory" in one.other_broker(7, entry(1, "a"))
    assert "is that of broker 1" in one.other_broker(7), "the metadata do not know it"
    assert "is that of broker 2" in one.other_broker(1, entry(1, "b"), entry(2, "a"))
    assert one.other_broker(1, entry(1, "b")) == "" and one.other_broker(1, entry(1, "b", "a")) == ""
    assert "is that of broker 2" in one.other_broker(1, entry(1, "b"), entry(2, "d", "a"))


def test_a_node_that_was_alone_may_come_under_another_id(tmp_path: Path) -> None:
    one = Directory(tmp_path / "one", Owner("c", nodes=(1,), directory="a"))
    assert one.other_broker(7, was_alone=True) == ""
    assert "is that of broker 1" in one.other_broker(7, entry(1, "a"), was_alone=True)


def test_a_directory_of_an_early_version_has_no_name(tmp_path: Path) -> None:
    assert Directory(tmp_path / "old", Owner("c")).other_broker(7, entry(1, "")) == ""
