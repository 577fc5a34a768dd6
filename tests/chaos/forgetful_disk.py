"""The simulator's disk as a file system needs it: by inode, and with the times of changes.

What a power loss may leave is decided by cairnmq.testing; here are only the operations that storage itself never uses.
"""

from __future__ import annotations

import errno
import os
import time
from random import Random
from typing import NamedTuple

from cairnmq.testing.sim_content import Content
from cairnmq.testing.sim_disk import SimDisk, _Directory, _Node

Directory = _Directory
Node = _Node


class TimedContent(Content):
    """Knows when it was changed."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        super().__init__()
        self.changed = time.time()

    def write(self, position: int, data: bytes) -> None:
        super().write(position, data)
        self.changed = time.time()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.changed = time.time()

    def after_power_loss(self, rng: Random) -> TimedContent:
        found = super().after_power_loss(rng)
        after = TimedContent()
        after.pages, after.size, after.eras = found.pages, found.size, found.eras
        after.durable, after.durable_size = found.durable, found.durable_size
        return after


class AtRisk(NamedTuple):
    """What a power loss now could take."""

    files: int  # with pages or a size that are not synced
    names: int  # changes of names that are not synced


class ForgetfulDisk(SimDisk):
    """Operations by inode; errors are OSError with the number that the kernel hands on."""

    def __init__(self, rng: Random, *, ext4: bool = False, lies_about: str = "") -> None:
        super().__init__(rng, ext4=ext4)
        self.lies_about = lies_about

    @property
    def root(self) -> Directory:
        return self._root

    def entry(self, parent: Directory, name: str) -> Node:
        found = parent.names.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return found

    def add(self, parent: Directory, name: str, node: Node) -> None:
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._change("create", name, [(parent, name, node)])

    def drop(self, parent: Directory, name: str) -> None:
        node = self.entry(parent, name)
        if isinstance(node, _Directory) and node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
        self._change("remove", name, [(parent, name, None)])

    def move(self, old: tuple[Directory, str], new: tuple[Directory, str]) -> None:
        node = self.entry(*old)
        replaced = new[0].names.get(new[1])
        if replaced is node:
            return
        if isinstance(replaced, _Directory) and replaced.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new[1])
        self._change("rename", f"{old[1]} to {new[1]}", [(*old, None), (*new, node)])

    def sync_content(self, content: Content) -> None:
        if not self.lies_about or not _is_named(self._root, content, self.lies_about):
            self._sync("", content)

    def sync_names(self, directory: Directory) -> None:
        self._settle_all() if self.ext4 else self._settle_directory(directory)

    def at_risk(self) -> AtRisk:
        return AtRisk(_unsynced(self._root), len(self._changes))

    def lose_power(self, rng: Random) -> ForgetfulDisk:
        """What is found when it comes back. Whether names are kept in order, as on ext4, changes from loss to loss."""
        found = self.crash(rng)
        after = ForgetfulDisk(rng, ext4=rng.random() < 0.25, lies_about=self.lies_about)
        after._root = found._root
        return after


def _unsynced(directory: Directory) -> int:
    return sum(
        _unsynced(node) if isinstance(node, _Directory) else not node.is_synced() for node in directory.names.values()
    )


def _is_named(directory: Directory, content: Content, ending: str) -> bool:
    return any(
        _is_named(node, content, ending) if isinstance(node, _Directory) else node is content and name.endswith(ending)
        for name, node in directory.names.items()
    )
