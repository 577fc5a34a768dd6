"""A disk in memory that forgets, on a simulated power loss, whatever a real one may forget.

What a file system guarantees is modelled, nothing more. Per file: bytes and size as of the last sync, and what
happened since (sim_content.py). Per directory: names as of the last sync_dir, and the changes since. A crash keeps any
part of the latter. Everything follows from the generator given, so a seed replays exactly.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from cairnmq.storage.files.buffers import ResponseArena
from cairnmq.storage.files.disk import TEMPORARY_SUFFIX, File, Names
from cairnmq.testing.sim_content import Content
from cairnmq.types import Buffers


class SimCrash(BaseException):
    """The machine stopped in the middle of an operation. Not an Exception, so that no handler of storage eats it."""


class _Directory:
    """An inode of a directory."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}


_Node: TypeAlias = Content | _Directory
# One atomic change of names: what each (directory, name) refers to afterwards.
_Change: TypeAlias = list[tuple[_Directory, str, _Node | None]]


class SimFile:
    """An open file of a SimDisk."""

    __slots__ = ("_content", "_disk", "_open", "_write", "name")

    def __init__(self, disk: SimDisk, name: str, content: Content, write: bool) -> None:
        self.name = name
        self._disk = disk
        self._content = content
        self._write = write
        self._open = True

    def __repr__(self) -> str:
        return f"SimFile({self.name!r})"

    def fileno(self) -> int:
        return -1

    def _check(self) -> Content:
        if self._disk.stopped:
            raise SimCrash("the machine is off")
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)
        return self._content

    def append(self, buffers: Buffers) -> int:
        content = self._check()
        if not self._write:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)
        data = b"".join(buffers)
        if data:
            self._disk._append(self.name, content, data)
        return len(data)

    def write_at(self, position: int, data: bytes) -> None:
        content = self._check()
        if not self._write:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)
        part = data[: len(data) // 2]
        # Few bytes go into the page cache in one go; a power loss may tear them.
        self._disk._apply(
            "write", self.name, lambda: content.write(position, data), lambda: content.write(position, part)
        )

    def read(self, position: int, size: int) -> bytes:
        return self._check().read(position, size)

    def read_cached(self, position: int, size: int, arena: ResponseArena | None = None) -> bytes | None:
        content = self._check()
        if self._disk.cold and self._disk.rng.random() < self._disk.cold:
            return None
        return content.read(position, size)

    def read_into(self, position: int, view: memoryview) -> int:
        data = self._check().read(position, len(view))
        view[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return self._check().size

    def modified_ms(self) -> int:
        return self._disk.modified_ms.get(self.name, -1)

    def sync(self) -> None:
        self._disk._sync(self.name, self._check())

    def truncate(self, size: int) -> None:
        content = self._check()
        if not self._write or size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
        self._disk._apply("truncate", self.name, lambda: content.truncate(size))

    def allocate(self, size: int) -> None:
        self._check()

    def forget(self, position: int, size: int) -> None:
        self._check()

    def close(self) -> None:
        self._open = False


class SimDisk:
    """A Disk in memory with power loss, process kill and failing operations.

    Operations that change something are counted from 1 in `operations`; reads are not. `replace`, `sync_files`,
    `make_dir` and `remove_tree` count each of their steps.

    crash_at: raise SimCrash in the middle of that operation; then only crash() and kill() are of use.
    faults: operation -> errno it fails with; an append may have written a part, a failed sync loses pages for good.
    sync_fault: errno that the next sync fails with, whichever operation it is.
    capacity: bytes all files together may have; appends beyond it are short and fail with ENOSPC.
    observe: called in the middle of every operation, so that one run can be crashed at each without a rerun.
    cold: chance that read_cached would have to wait.
    modified_ms: when files were last written to, by name; a test says so, because this disk has no clock.
    ext4: names change in order and become durable with any sync, as on a journaling file system. Without it, only
    what POSIX promises: each change is atomic, and changes of different names are kept or lost independently.
    """

    def __init__(self, rng: Random, *, ext4: bool = False, capacity: int | None = None) -> None:
        self.rng = rng
        self.ext4 = ext4
        self.capacity = capacity
        self.cold = 0.0
        self.modified_ms: dict[str, int] = {}
        self.operations = 0
        self.last_operation = ""
        self.crash_at: int | None = None
        self.faults: dict[int, int] = {}
        self.sync_fault: int | None = None
        self.observe: Callable[[SimDisk], None] | None = None
        self.stopped = False
        self._root = _Directory()
        self._changes: list[_Change] = []

    # What happens to the machine

    def kill(self, rng: Random | None = None) -> SimDisk:
        """The disk as the next process finds it after a kill -9: all that was written, synced or not."""
        copies: dict[_Node, _Node] = {}
        after = SimDisk(Random((rng or self.rng).getrandbits(64)), ext4=self.ext4, capacity=self.capacity)
        after.cold = self.cold
        after._root = _copy_directory(self._root, copies)
        after._changes = [
            [(_copy_directory(parent, copies), name, _copy(node, copies)) for parent, name, node in change]
            for change in self._changes
        ]
        return after

    def crash(self, rng: Random | None = None) -> SimDisk:
        """A disk as it may be found after a power loss now. This one is left as it is and can be crashed again."""
        rng = rng or self.rng
        after = SimDisk(Random(rng.getrandbits(64)), ext4=self.ext4, capacity=self.capacity)
        after.cold = self.cold
        kept = self._surviving_changes(rng)
        after._root = _survive(self._root, kept, rng)
        return after

    def _surviving_changes(self, rng: Random) -> dict[_Directory, dict[str, _Node | None]]:
        keep = rng.choice((0.0, 0.3, 0.7, 1.0))
        kept: dict[_Directory, dict[str, _Node | None]] = {}
        lost: set[tuple[_Directory, str]] = set()
        for change in self._changes:
            keys = [(parent, name) for parent, name, _ in change]
            # A change builds on the earlier ones of the same names, so none is kept without those.
            if rng.random() < keep and lost.isdisjoint(keys):
                for parent, name, node in change:
                    kept.setdefault(parent, {})[name] = node
            elif self.ext4:
                break
            else:
                lost.update(keys)
        return kept

    def damage(self, name: str, position: int, flip: int = 0x01) -> None:
        """Flip bits of one byte, as a failing device does: durable, and seen by nobody until it is read."""
        self._file(name).damage(position, flip)

    def is_synced(self, name: str) -> bool:
        """Nothing of this file can be lost."""
        return self._file(name).is_synced()

    # Operations

    def _begin(self, kind: str, name: str) -> bool:
        """Count an operation; says whether the machine stops in the middle of it."""
        if self.stopped:
            raise SimCrash("the machine is off")
        self.operations += 1
        self.last_operation = f"{kind} {name}"
        return self.operations == self.crash_at

    def _stop(self) -> SimCrash:
        self.stopped = True
        return SimCrash(f"stopped in operation {self.operations}: {self.last_operation}")

    def _fault(self, name: str, kind: str = "append") -> OSError | None:
        number = self.faults.get(self.operations)
        if kind == "sync" and self.sync_fault is not None:
            number, self.sync_fault = self.sync_fault, None
        return None if number is None else OSError(number, os.strerror(number), name)

    def _apply(self, kind: str, name: str, act: Callable[[], None], fail: Callable[[], None] | None = None) -> None:
        """An operation that happens as a whole or not at all; fail is what it does when it is told to fail."""
        if self._begin(kind, name):
            if self.rng.random() < 0.5:
                act()
            raise self._stop()
        if fault := self._fault(name, kind):
            if fail:
                fail()
            raise fault
        if self.observe:
            self.observe(self)
        act()

    def _append(self, name: str, content: Content, data: bytes) -> None:
        stops = self._begin("append", name)
        fault = self._fault(name)
        if fault is None and self.capacity is not None and len(data) > (free := self.free_bytes()):
            data = data[:free]
            fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        elif fault is not None:
            data = data[: self.rng.randrange(len(data))]
        if stops or self.observe:
            part = self.rng.randint(0, len(data))
            content.append(data[:part])
            if stops:
                raise self._stop()
            if self.observe:
                self.observe(self)
            data = data[part:]
        content.append(data)
        if fault is not None:
            raise fault

    def _sync(self, name: str, content: Content) -> None:
        def act() -> None:
            content.sync()
            if self.ext4:
                self._settle_all()

        self._apply("sync", name, act, lambda: content.fail_sync(self.rng))

    def _change(self, kind: str, name: str, change: _Change) -> None:
        def act() -> None:
            for parent, entry, node in change:
                if node is None:
                    del parent.names[entry]
                else:
                    parent.names[entry] = node
            self._changes.append(change)

        self._apply(kind, name, act)

    def _settle_all(self) -> None:
        for change in self._changes:
            _settle(change)
        self._changes.clear()

    def _settle_directory(self, directory: _Directory) -> None:
        needed: set[tuple[_Directory, str]] = set()
        settled: list[_Change] = []
        left: list[_Change] = []
        for change in reversed(self._changes):
            keys = [(parent, name) for parent, name, _ in change]
            if any(parent is directory for parent, _ in keys) or not needed.isdisjoint(keys):
                needed.update(keys)
                settled.append(change)
            else:
                left.append(change)
        for change in reversed(settled):
            _settle(change)
        self._changes = left[::-1]

    # Names

    def _find(self, name: str) -> _Node | None:
        node: _Node = self._root
        for part in name.split("/"):
            if not part:
                continue
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            found = node.names.get(part)
            if found is None:
                return None
            node = found
        return node

    def _file(self, name: str) -> Content:
        node = self._find(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return node

    def _directory(self, name: str) -> _Directory:
        node = self._find(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return node

    def _parent(self, name: str) -> tuple[_Directory, str]:
        directory, _, entry = name.rpartition("/")
        return self._directory(directory), entry

    # Disk

    def create(self, name: str) -> SimFile:
        parent, entry = self._parent(name)
        if entry in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        content = Content()
        self._change("create", name, [(parent, entry, content)])
        return SimFile(self, name, content, True)

    def open(self, name: str, *, write: bool = False) -> SimFile:
        return SimFile(self, name, self._file(name), write)

    def open_in_place(self, name: str) -> SimFile:
        return self.open(name, write=True) if self.exists(name) else self.create(name)

    def exists(self, name: str) -> bool:
        try:
            return self._find(name) is not None
        except NotADirectoryError:
            return False

    def list(self, directory: str) -> Names:
        if self._find(directory) is None:
            return []
        return sorted(self._directory(directory).names)

    def make_dir(self, name: str) -> None:
        parts = [part for part in name.split("/") if part]
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            node = self._find(path)
            if node is None:
                parent, entry = self._parent(path)
                self._change("make_dir", path, [(parent, entry, _Directory())])
            elif count == len(parts) and not isinstance(node, _Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)

    def remove(self, name: str) -> None:
        node = self._find(name)
        if node is None:
            return
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        parent, entry = self._parent(name)
        self._change("remove", name, [(parent, entry, None)])

    def remove_tree(self, name: str) -> None:
        if self._find(name) is None:
            return
        entries = sorted(self._directory(name).names.items())
        # The order in which a real directory is walked is anybody's guess.
        self.rng.shuffle(entries)
        for entry, node in entries:
            path = f"{name}/{entry}"
            if isinstance(node, _Directory):
                self.remove_tree(path)
            else:
                self.remove(path)
        parent, entry = self._parent(name)
        self._change("remove", name, [(parent, entry, None)])

    def rename(self, old: str, new: str) -> None:
        old_parent, old_entry = self._parent(old)
        new_parent, new_entry = self._parent(new)
        node = old_parent.names.get(old_entry)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        replaced = new_parent.names.get(new_entry)
        if replaced is node:
            return
        if new.startswith(f"{old}/"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)
        if old.startswith(f"{new}/"):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        if isinstance(node, _Directory):
            if isinstance(replaced, Content):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), new)
            if replaced is not None and replaced.names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        elif isinstance(replaced, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
        self._change("rename", f"{old} to {new}", [(old_parent, old_entry, None), (new_parent, new_entry, node)])

    def sync_dir(self, name: str) -> None:
        directory = self._directory(name)
        self._apply("sync_dir", name, self._settle_all if self.ext4 else lambda: self._settle_directory(directory))

    def replace(self, name: str, data: bytes) -> None:
        temporary = name + TEMPORARY_SUFFIX
        if self.exists(temporary):
            file = self.open(temporary, write=True)
            file.truncate(0)
        else:
            file = self.create(temporary)
        file.append([data])
        file.sync()
        file.close()
        self.rename(temporary, name)
        self.sync_dir(name.rpartition("/")[0])

    def sync_files(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        for file in files:
            file.sync()
        for directory in directories:
            self.sync_dir(directory)

    def free_bytes(self) -> int:
        if self.capacity is None:
            return 1 << 40
        return max(self.capacity - _used(self._root), 0)


def _settle(change: _Change) -> None:
    for parent, name, node in change:
        if node is None:
            parent.durable.pop(name, None)
        else:
            parent.durable[name] = node


def _copy_directory(directory: _Directory, copies: dict[_Node, _Node]) -> _Directory:
    known = copies.get(directory)
    if isinstance(known, _Directory):
        return known
    copied = _Directory()
    copies[directory] = copied
    for name, node in directory.names.items():
        copied.names[name] = _copy_known(node, copies)
    for name, node in directory.durable.items():
        copied.durable[name] = _copy_known(node, copies)
    return copied


def _copy_known(node: _Node, copies: dict[_Node, _Node]) -> _Node:
    if isinstance(node, _Directory):
        return _copy_directory(node, copies)
    known = copies.get(node)
    if known is None:
        known = copies[node] = node.copy()
    return known


def _copy(node: _Node | None, copies: dict[_Node, _Node]) -> _Node | None:
    return None if node is None else _copy_known(node, copies)


def _survive(directory: _Directory, kept: dict[_Directory, dict[str, _Node | None]], rng: Random) -> _Directory:
    names: dict[str, _Node | None] = dict(directory.durable)
    names.update(kept.get(directory, {}))
    after = _Directory()
    for name, node in sorted(names.items()):
        if isinstance(node, _Directory):
            after.names[name] = _survive(node, kept, rng)
        elif node is not None:
            after.names[name] = node.after_power_loss(rng)
    after.durable = dict(after.names)
    return after


def _used(directory: _Directory) -> int:
    return sum(_used(node) if isinstance(node, _Directory) else node.size for node in directory.names.values())
