"""The kernel's side of a file system in user space: requests from /dev/fuse, answered from a ForgetfulDisk.

Spoken directly (include/uapi/linux/fuse.h): inodes are what a power loss is about, and the usual libraries hand out
paths. Only what a broker uses is answered; the rest is ENOSYS, for which the kernel has its own ways.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable

from cairnmq.testing.sim_content import PAGE
from chaos.forgetful_disk import Directory, ForgetfulDisk, Node, TimedContent

MAX_WRITE = 1 << 17
BUFFER = MAX_WRITE + (1 << 13)
ROOT_ID = 1
FOR_EVER = 1 << 30  # nobody else changes this disk: the kernel may keep names and attributes as long as it likes
FREE_BYTES = 1 << 36

ASYNC_READ, BIG_WRITES = 1 << 0, 1 << 5
FATTR_SIZE = 1 << 3
RENAME_FLAGS_NONE = 0

IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ATTRIBUTES = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<QQQQII")
ATTRIBUTES_FOR = struct.Struct("<QII")
READ_OR_WRITE = struct.Struct("<QQIIQII")
SET_ATTRIBUTES = struct.Struct("<IIQQ")
OPENED = struct.Struct("<QII")
DIRENT = struct.Struct("<QQII")
STATFS = struct.Struct("<5Q4I24x")
TWO = struct.Struct("<QQ")

(LOOKUP, FORGET, GETATTR, SETATTR) = (1, 2, 3, 4)
(MKNOD, MKDIR, UNLINK, RMDIR, RENAME) = (8, 9, 10, 11, 12)
(READ, WRITE, STATFS_CALL, FSYNC, INIT) = (15, 16, 17, 20, 26)
(OPENDIR, READDIR, RELEASEDIR, FSYNCDIR) = (27, 28, 29, 30)
(INTERRUPT, DESTROY, BATCH_FORGET, RENAME2) = (36, 38, 42, 45)
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}


class FuseServer:
    """Answers one mount. Closing the device is the moment of a power loss: nothing passes any more."""

    def __init__(self, device: int, disk: ForgetfulDisk) -> None:
        self.device = device
        self.disk = disk
        self.nodes: dict[int, Node] = {ROOT_ID: disk.root}
        self.ids: dict[Node, int] = {disk.root: ROOT_ID}
        self.lookups: dict[int, int] = {}
        self.next_id = ROOT_ID + 1
        self.listings: dict[int, list[tuple[str, Node]]] = {}
        self.next_listing = 1
        self.buffer = bytearray(BUFFER)
        self.view = memoryview(self.buffer)
        self.calls: dict[int, Callable[[int, memoryview], bytes]] = {
            INIT: self.init, LOOKUP: self.lookup, FORGET: self.forget, BATCH_FORGET: self.forget_many,
            GETATTR: self.get_attributes, SETATTR: self.set_attributes, MKNOD: self.make_file, MKDIR: self.make_dir,
            UNLINK: self.remove, RMDIR: self.remove, RENAME: self.rename, RENAME2: self.rename_with_flags,
            READ: self.read, WRITE: self.write, STATFS_CALL: self.statfs, FSYNC: self.sync, FSYNCDIR: self.sync,
            OPENDIR: self.open_dir, READDIR: self.read_dir, RELEASEDIR: self.release_dir,
            DESTROY: lambda node_id, body: b"", INTERRUPT: lambda node_id, body: b"",
        }  # fmt: skip

    def serve_one(self) -> bool:
        """One request; False when the file system was unmounted."""
        try:
            size = os.readv(self.device, [self.buffer])
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return True  # the request was taken back
            if error.errno == errno.ENODEV:
                return False
            raise
        _, opcode, unique, node_id, *_ = IN_HEADER.unpack_from(self.buffer)
        call = self.calls.get(opcode)
        number, answer = 0, b""
        if call is None:
            number = errno.ENOSYS
        else:
            try:
                answer = call(node_id, self.view[IN_HEADER.size : size])
            except OSError as error:
                number = error.errno or errno.EIO
        if opcode not in SILENT:
            self.answer(unique, number, answer)
        return True

    def answer(self, unique: int, number: int, body: bytes) -> None:
        try:
            os.writev(self.device, [OUT_HEADER.pack(OUT_HEADER.size + len(body), -number, unique), body])
        except OSError as error:
            if error.errno != errno.ENOENT:  # whoever asked is dead
                raise

    # Inodes

    def directory(self, node_id: int) -> Directory:
        node = self.nodes[node_id]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return node

    def file(self, node_id: int) -> TimedContent:
        node = self.nodes[node_id]
        if not isinstance(node, TimedContent):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return node

    def id_of(self, node: Node) -> int:
        known = self.ids.get(node)
        if known is None:
            known = self.ids[node] = self.next_id
            self.nodes[known] = node
            self.next_id += 1
        return known

    def attributes(self, node: Node, number: int) -> bytes:
        if isinstance(node, TimedContent):
            mode, size, links, changed = stat.S_IFREG | 0o644, node.size, 1, node.changed
        else:
            mode, size, links, changed = stat.S_IFDIR | 0o755, PAGE, 2, 0.0
        seconds, nanoseconds = int(changed), int(changed % 1 * 1e9)
        return ATTRIBUTES.pack(
            number, size, (size + 511) // 512, seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds,
            mode, links, os.getuid(), os.getgid(), 0, PAGE, 0,
        )  # fmt: skip

    def known(self, node: Node) -> bytes:
        """The answer that makes the kernel hold an inode."""
        number = self.id_of(node)
        self.lookups[number] = self.lookups.get(number, 0) + 1
        return ENTRY.pack(number, 0, FOR_EVER, FOR_EVER, 0, 0) + self.attributes(node, number)

    def lookup(self, node_id: int, body: memoryview) -> bytes:
        return self.known(self.disk.entry(self.directory(node_id), text(body)))

    def forget(self, node_id: int, body: memoryview) -> bytes:
        self.let_go(node_id, int.from_bytes(body[:8], "little"))
        return b""

    def forget_many(self, node_id: int, body: memoryview) -> bytes:
        count = int.from_bytes(body[:4], "little")
        for number, times in TWO.iter_unpack(body[8 : 8 + count * TWO.size]):
            self.let_go(number, times)
        return b""

    def let_go(self, number: int, times: int) -> None:
        left = self.lookups.get(number, 0) - times
        self.lookups[number] = left
        if left <= 0 and number != ROOT_ID:
            del self.lookups[number]
            del self.ids[self.nodes.pop(number)]

    # Calls

    def init(self, node_id: int, body: memoryview) -> bytes:
        major, minor, read_ahead, flags = INIT_IN.unpack_from(body)
        wanted = flags & (ASYNC_READ | BIG_WRITES)
        return INIT_OUT.pack(7, min(minor, 31), read_ahead, wanted, 16, 12, MAX_WRITE, 1, 0, 0, 0)

    def get_attributes(self, node_id: int, body: memoryview) -> bytes:
        return ATTRIBUTES_FOR.pack(FOR_EVER, 0, 0) + self.attributes(self.nodes[node_id], node_id)

    def set_attributes(self, node_id: int, body: memoryview) -> bytes:
        """Only a size is kept; owners and times are nobody's business here."""
        valid, _, _, size = SET_ATTRIBUTES.unpack_from(body)
        if valid & FATTR_SIZE:
            self.file(node_id).truncate(size)
        return self.get_attributes(node_id, body)

    def make_file(self, node_id: int, body: memoryview) -> bytes:
        node = TimedContent()
        self.disk.add(self.directory(node_id), text(body[16:]), node)
        return self.known(node)

    def make_dir(self, node_id: int, body: memoryview) -> bytes:
        node = Directory()
        self.disk.add(self.directory(node_id), text(body[8:]), node)
        return self.known(node)

    def remove(self, node_id: int, body: memoryview) -> bytes:
        self.disk.drop(self.directory(node_id), text(body))
        return b""

    def rename(self, node_id: int, body: memoryview, names_at: int = 8) -> bytes:
        target = int.from_bytes(body[:8], "little")
        old, new = bytes(body[names_at:]).split(b"\0")[:2]
        self.disk.move((self.directory(node_id), old.decode()), (self.directory(target), new.decode()))
        return b""

    def rename_with_flags(self, node_id: int, body: memoryview) -> bytes:
        if int.from_bytes(body[8:12], "little") != RENAME_FLAGS_NONE:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return self.rename(node_id, body, names_at=16)

    def read(self, node_id: int, body: memoryview) -> bytes:
        _, position, size, *_ = READ_OR_WRITE.unpack_from(body)
        return self.file(node_id).read(position, size)

    def write(self, node_id: int, body: memoryview) -> bytes:
        _, position, size, *_ = READ_OR_WRITE.unpack_from(body)
        begin = READ_OR_WRITE.size
        self.file(node_id).write(position, bytes(body[begin : begin + size]))
        return struct.pack("<Q", size)

    def statfs(self, node_id: int, body: memoryview) -> bytes:
        blocks = FREE_BYTES // PAGE
        return STATFS.pack(2 * blocks, blocks, blocks, 1 << 20, 1 << 20, PAGE, 255, PAGE, 0)

    def sync(self, node_id: int, body: memoryview) -> bytes:
        node = self.nodes[node_id]
        if isinstance(node, Directory):
            self.disk.sync_names(node)
        else:
            self.disk.sync_content(node)
        return b""

    def open_dir(self, node_id: int, body: memoryview) -> bytes:
        handle, self.next_listing = self.next_listing, self.next_listing + 1
        self.listings[handle] = list(self.directory(node_id).names.items())
        return OPENED.pack(handle, 0, 0)

    def read_dir(self, node_id: int, body: memoryview) -> bytes:
        handle, offset, size, *_ = READ_OR_WRITE.unpack_from(body)
        rows = b""
        for index, (name, node) in enumerate(self.listings[handle][offset:], offset + 1):
            kind = stat.S_IFREG if isinstance(node, TimedContent) else stat.S_IFDIR
            encoded = name.encode()
            row = DIRENT.pack(self.id_of(node), index, len(encoded), kind >> 12) + encoded
            row += bytes(-len(row) % 8)
            if len(rows) + len(row) > size:
                break
            rows += row
        return rows

    def release_dir(self, node_id: int, body: memoryview) -> bytes:
        del self.listings[int.from_bytes(body[:8], "little")]
        return b""


def text(body: memoryview) -> str:
    return bytes(body).partition(b"\0")[0].decode()
