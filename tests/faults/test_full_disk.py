"""Full disks under load: the write disk, the read disk, one disk for both; and room again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faults.disks import fill, small_disk
from faults.scene import SECONDS, Scene
from interop.clients.contract import Refused

KAFKA_STORAGE_ERROR = 56
MEGABYTES = 48


def test_full_write_disk(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    with small_disk(tmp_path / "write", MEGABYTES) as disk:
        scene = make_scene(journals=disk / "journals")
        load = scene.load()
        load.wait_for(500, SECONDS)
        junk = fill(disk)
        reason = scene.wait_for_reason("journal 0: write failed", "the disk is full", "bytes free")
        assert "writing resumes when" in reason
        scene.read_all()
        scene.client.create_topic("another", 1)
        junk.unlink()
        scene.wait_until_well()
        load.wait_for(500, SECONDS)
        scene.ends_well()


def test_full_read_disk(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    """Producing goes on; topics cannot be created, and the answer says why."""
    with small_disk(tmp_path / "read", MEGABYTES) as disk:
        scene = make_scene(data=disk / "data")
        load = scene.load()
        load.wait_for(500, SECONDS)
        junk = fill(disk)
        scene.wait_for_reason("splitter", "the disk is full", "splitting resumes by itself")
        load.wait_for(500, SECONDS)
        fill(disk)  # the reserve, which only checkpoints should have
        with pytest.raises(Refused, match="disk is full") as refused:
            scene.client.create_topic("another", 1000)
        assert refused.value.code == KAFKA_STORAGE_ERROR
        scene.read_all()
        junk.unlink()
        scene.wait_until_well()
        scene.client.create_topic("another", 1)
        load.wait_for(500, SECONDS)
        scene.ends_well()


def test_one_full_disk_for_everything(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    with small_disk(tmp_path / "both", MEGABYTES) as disk:
        scene = make_scene(data=disk / "data", journals=disk / "journals")
        load = scene.load()
        for _ in range(2):
            load.wait_for(500, SECONDS)
            junk = fill(disk)
            scene.wait_for_reason("journal 0: write failed", "the disk is full")
            scene.read_all()
            junk.unlink()
            scene.wait_until_well()
        load.wait_for(500, SECONDS)
        scene.ends_well()
