"""Scenes that end with their test, and rules for disks that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_process import Broker
from faults.disks import Rules
from faults.scene import Scene


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path / "faults")


@pytest.fixture
def make_scene(make_broker: Callable[..., Broker]) -> Iterator[Callable[..., Scene]]:
    """Takes Scene's own arguments."""
    made: list[Scene] = []

    def make(**options: object) -> Scene:
        scene = Scene(make_broker, **options)  # type: ignore[arg-type]
        made.append(scene)
        return scene

    yield make
    for scene in made:
        scene.abandon()
