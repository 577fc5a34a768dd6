"""Files and directories as storage sees them, and the lock of a directory.

Storage works on a `Disk`, so that the simulator can put its own in place; nothing else there imports os, fcntl or
ctypes, but for the import of a Kafka directory, which is not ours. Calls block; errors are plain OSError.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from cairnmq.errors import WITHOUT_ASSERTS, Fault, Locked
from cairnmq.storage.files.buffers import LARGE, ResponseArena
from cairnmq.types import Buffer, Buffers

Names: TypeAlias = list[str]

LOCK_NAME = "lock"
TEMPORARY_SUFFIX = ".tmp"

# Below this many files their own fdatasyncs are cheaper than flushing the whole file system.
SYNCFS_ABOVE = 32

_IOV_MAX = os.sysconf("SC_IOV_MAX")
_LOCK_POLL_SECONDS = 0.02
_LONG_CLOSE_BYTES = 4 << 20
_BLOCK_BYTES = 512  # of st_blocks
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_fdatasync = getattr(os, "fdatasync", os.fsync)

# File systems whose syncfs waits for the data of every file and flushes the device: ext4, xfs, btrfs.
_SYNCFS_MAGICS = frozenset({0xEF53, 0x58465342, 0x9123683E})
# Older kernels do not report failed writeback through syncfs.
_SYNCFS_KERNEL = (5, 8)


class File(Protocol):
    """One open file that only ever grows at its end or is cut, or else one to be written over in place."""

    name: str

    def append(self, buffers: Buffers) -> int:
        """Write all bytes at the end and return their number.

        After an OSError a part may be there: the caller cuts it off with truncate.
        """

    def write_at(self, position: int, data: bytes) -> None:
        """Write over what is there, of a file from `open_in_place`. A crash may leave any part of it."""

    def read(self, position: int, size: int) -> bytes:
        """Up to size bytes; fewer only at the end of the file."""

    def read_cached(self, position: int, size: int, arena: ResponseArena | None = None) -> Buffer | None:
        """What read would return, or None where that would wait for the device.

        With an `arena` it may lie there; the caller tells the arena how much of it to keep.
        """

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill the view; returns fewer bytes than it holds only at the end of the file."""

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """When it was last written to, by the clock of the machine; -1 if the disk does not know."""

    def sync(self) -> None:
        """Make the bytes and the size durable (not the name: that is sync_dir)."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Gives the file room on the disk up to this size, which it does not have yet; not every disk can."""

    def forget(self, position: int, size: int) -> None:
        """A hint that these bytes are not read again soon."""

    def fileno(self) -> int:
        """For a system call that this class does not have; -1 if the system does not know the file."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of files; names are '/'-separated and relative to its root, which is called ''."""

    def create(self, name: str) -> File:
        """A new empty file, open for writing; FileExistsError if there is one."""

    def open(self, name: str, *, write: bool = False) -> File: ...

    def open_in_place(self, name: str) -> File:
        """A file that is written with `write_at` alone; made if there is none."""

    def exists(self, name: str) -> bool: ...

    def list(self, directory: str) -> Names:
        """Names in a directory, sorted; none if there is no such directory."""

    def make_dir(self, name: str) -> None:
        """Make a directory and its parents; their names are durable after sync_dir of each parent."""

    def remove(self, name: str) -> None: ...

    def remove_tree(self, name: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def sync_dir(self, name: str) -> None:
        """Make the names in a directory durable (not those in its subdirectories)."""

    def replace(self, name: str, data: bytes) -> None:
        """Durably put a file with this content in place of the old one: after a crash it is the one or the other."""

    def sync_files(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """sync for many files and sync_dir for many directories, in one step where that is cheaper."""

    def free_bytes(self) -> int: ...


class Unreadable(OSError):
    """The device does not give some bytes of a file back. That is one file's misfortune, unlike a write that fails."""


class RealFile:
    """A file of the operating system. Closes itself when the last reference goes."""

    __slots__ = ("_fd", "name")

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self._fd = fd

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RealFile({self.name!r})"

    def fileno(self) -> int:
        return self._fd

    def append(self, buffers: Buffers) -> int:
        total = sum(map(len, buffers))
        if total == 0:
            return 0
        if len(buffers) <= _IOV_MAX:
            written = os.writev(self._fd, buffers)
            if written == total:
                return total
        else:
            written = 0
        self._append_rest(buffers, written, total)
        return total

    def _append_rest(self, buffers: Buffers, written: int, total: int) -> None:
        index, skip = 0, written
        while True:
            while index < len(buffers) and skip >= len(buffers[index]):
                skip -= len(buffers[index])
                index += 1
            if written == total:
                return
            # Leading empty buffers were passed over, so the kernel has at least one byte to take.
            part = list(buffers[index : index + _IOV_MAX])
            part[0] = memoryview(part[0])[skip:]
            count = os.writev(self._fd, part)
            if count == 0:
                raise OSError(errno.EIO, "the system took none of the bytes", self.name)
            written += count
            skip += count

    def write_at(self, position: int, data: bytes) -> None:
        if os.pwrite(self._fd, data, position) != len(data):
            raise OSError(errno.EIO, "the system took only a part of the bytes", self.name)

    def read(self, position: int, size: int) -> bytes:
        try:
            return self._read(position, size)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Unreadable(error.errno, error.strerror, self.name) from error
            raise

    def _read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # The kernel caps one read at 2 GiB and may stop early on a signal: only an empty read is the end.
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int, arena: ResponseArena | None = None) -> Buffer | None:
        if not _RWF_NOWAIT:
            return self.read(position, size)
        if arena is not None and not arena.fits(size):
            size = min(size, self.size() - position)  # many a reader asks for much more than there is
        if size <= 0:
            return b""
        room = arena.take(size) if arena is not None and size <= LARGE else memoryview(bytearray(size))
        try:
            count = os.preadv(self._fd, [room], position, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return self.read(position, size)
            raise
        if count < size and position + count < self.size():
            return None
        if arena is None and count < size // 2:
            return bytes(room[:count])  # it must not hold the room that it asked for
        return room[:count]

    def read_into(self, position: int, view: memoryview) -> int:
        size = len(view)
        got = 0
        while got < size and (count := os.preadv(self._fd, [view[got:]], position + got)):
            got += count
        return got

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def sync(self) -> None:
        # Unlike its siblings, fdatasync answers a closed descriptor with ValueError.
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)
        _fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        call = getattr(_libc, "fallocate64", None)
        if call is not None and call(self._fd, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(number, os.strerror(number), self.name)

    def forget(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)


class RealDisk:
    """A directory of the operating system; made if it is missing. All that works on real data begins here, so Python
    without asserts ends here."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not __debug__:
            raise Fault(WITHOUT_ASSERTS)
        self.root = os.path.abspath(root)
        _make_durable_dirs(self.root)
        # Kept open for life: syncfs reports the writeback failures since its descriptor was opened.
        self._root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        self._device = os.fstat(self._root_fd).st_dev
        self._has_syncfs = _honours_syncfs(self._root_fd)

    def __del__(self) -> None:
        fd, self._root_fd = getattr(self, "_root_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"RealDisk({self.root!r})"

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def create(self, name: str) -> RealFile:
        return RealFile(name, os.open(self._path(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644))

    def open(self, name: str, *, write: bool = False) -> RealFile:
        return RealFile(name, os.open(self._path(name), os.O_RDWR | os.O_APPEND if write else os.O_RDONLY))

    def open_in_place(self, name: str) -> RealFile:
        # Without O_APPEND: Linux would append whatever position is given.
        return RealFile(name, os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o644))

    def exists(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def list(self, directory: str) -> Names:
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def make_dir(self, name: str) -> None:
        os.makedirs(self._path(name), exist_ok=True)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            pass

    def remove_tree(self, name: str) -> None:
        try:
            shutil.rmtree(self._path(name))
        except FileNotFoundError:
            pass

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def sync_dir(self, name: str) -> None:
        _sync_dir(self._path(name))

    def replace(self, name: str, data: bytes) -> None:
        temporary = name + TEMPORARY_SUFFIX
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
        file = RealFile(temporary, os.open(self._path(temporary), flags, 0o644))
        try:
            file.append([data])
            os.fsync(file.fileno())
        finally:
            file.close()
        self.rename(temporary, name)
        self.sync_dir(name.rpartition("/")[0])

    def sync_files(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        if (
            len(files) + len(directories) > SYNCFS_ABOVE
            and self._has_syncfs
            and all(map(self._is_on_root_device, files))
        ):
            try:
                _syncfs(self._root_fd)
                return
            except OSError:
                # It may be about files of others. Each of ours still reports its own failure once, below. syncfs
                # does not tell it again: its success would mean nothing for files that were written before this and are
                # synced later, as in the next part of a checkpoint.
                self._has_syncfs = False
        for file in files:
            file.sync()
        for directory in directories:
            self.sync_dir(directory)

    def _is_on_root_device(self, file: File) -> bool:
        return isinstance(file, RealFile) and os.fstat(file.fileno()).st_dev == self._device

    def free_bytes(self) -> int:
        status = os.fstatvfs(self._root_fd)
        return status.f_bavail * status.f_frsize


class DirectoryLock:
    """Ownership of a directory, held for as long as any process has the descriptor open.

    The descriptor is inheritable: a child that gets it keeps the directory locked after the parent was killed, so
    no successor starts while a writer of the old one lives.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        # No LOCK_UN: that would take the lock away from the children that share it too.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def lock(path: str | os.PathLike[str], wait_seconds: float = 0.0) -> DirectoryLock:
    """Become the owner of a directory (made if missing); raises Locked if another still is after the wait."""
    directory = os.path.abspath(path)
    _make_durable_dirs(directory)
    held = DirectoryLock(directory, os.open(os.path.join(directory, LOCK_NAME), os.O_RDWR | os.O_CREAT, 0o644))
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                owner = os.pread(held.fd, 20, 0).decode("ascii", "replace").strip()
                held.close()
                who = f"process {owner} or a child of it" if owner else "another process"
                raise Locked(
                    f"the directory {directory} is in use by {who}; stop it, or choose another directory"
                ) from None
            time.sleep(min(left, _LOCK_POLL_SECONDS))
    # The number only serves the sentence above: a full disk must not keep the broker from starting.
    with contextlib.suppress(OSError):
        os.ftruncate(held.fd, 0)
        os.pwrite(held.fd, b"%d\n" % os.getpid(), 0)
    os.set_inheritable(held.fd, True)
    return held


def lock_all(paths: Sequence[str], wait_seconds: float = 0.0) -> list[DirectoryLock]:
    """Become the owner of all of them, or of none; one that is named twice is locked once."""
    held: list[DirectoryLock] = []
    try:
        for path in paths:
            if not any(os.path.isdir(path) and os.path.samefile(path, one.path) for one in held):
                held.append(lock(path, wait_seconds))
    except (Locked, OSError):
        for one in held:
            one.close()
        raise
    return held


def _close(fd: int) -> None:
    """The last close of a removed file gives back its blocks, which may take a tenth of a second for a journal segment
    (ext4 with `discard`): nobody waits for that."""
    try:
        status = os.fstat(fd)
        if not status.st_nlink and status.st_blocks * _BLOCK_BYTES >= _LONG_CLOSE_BYTES:
            _to_close.append(fd)
            _thread.start_new_thread(_close_waiting, ())
            return
    except (OSError, RuntimeError):  # it cannot be asked; there is no other thread
        with contextlib.suppress(ValueError):
            _to_close.remove(fd)
    os.close(fd)


def _close_waiting() -> None:
    """One after another, whoever begins: each thread but one finds that somebody is at it."""
    while _to_close:
        if not _closing.acquire(blocking=False):
            return
        try:
            while _to_close:
                with contextlib.suppress(OSError):
                    os.close(_to_close.popleft())
        finally:
            _closing.release()


def _sync_dir(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_durable_dirs(path: str) -> None:
    """Each is durable before the next is made. The last one that is there already may be the work of a process that
    was killed before it synced the name, so that is synced too."""
    parent = os.path.dirname(path)
    if not os.path.isdir(path):
        _make_durable_dirs(parent)
        os.makedirs(path, exist_ok=True)
    # A parent that we may not read is not one in which we made anything.
    with contextlib.suppress(PermissionError):
        _sync_dir(parent)


def _honours_syncfs(fd: int) -> bool:
    system = os.uname()
    if system.sysname != "Linux" or not hasattr(_libc, "syncfs"):
        return False
    numbers = system.release.split("-", 1)[0].split(".")
    if tuple(int(number) for number in numbers[:2] if number.isdigit()) < _SYNCFS_KERNEL:
        return False
    # The structure differs between machines, but its first word is the type of the file system on those we run on.
    status = (ctypes.c_long * 64)()
    return _libc.fstatfs(fd, status) == 0 and status[0] & 0xFFFFFFFF in _SYNCFS_MAGICS


def _syncfs(fd: int) -> None:
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_libc = ctypes.CDLL(None, use_errno=True)
_to_close: deque[int] = deque()
_closing = _thread.allocate_lock()
