"""Packs that no checkpoint names: left over from a crash. They go, unless one that counts is lost: then a merge that
was under way may hold what was in it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from cairnmq.errors import Corrupt
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import PACK_SUFFIX, PACKS, numbered, pack_name
from cairnmq.storage.files.set_aside import put_aside
from cairnmq.storage.packs.pack import PackReader


class SparePacks:
    """`known`: those that count."""

    def __init__(self, disk: Disk, known: Collection[int]) -> None:
        self.disk = disk
        held = set(numbered(disk.list(PACKS), PACK_SUFFIX))
        self.numbers = sorted(held.difference(known))
        self.are_wanted = not held.issuperset(known)

    def remove(self) -> None:
        for number in self.numbers:
            self.disk.remove(pack_name(number))
        self.numbers = []

    def put_aside(self, epoch: int) -> None:
        """Where a person finds them: nothing could be made good with them here."""
        put_aside(self.disk, [pack_name(number) for number in self.numbers], epoch)
        self.numbers = []

    def open(self) -> list[PackReader]:
        """Those that were finished."""
        packs = []
        for number in self.numbers:
            with suppress(Corrupt, OSError):
                packs.append(PackReader.open(self.disk, number))
        return packs
