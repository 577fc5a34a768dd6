"""What a link has to send: bytes, and ranges of files, which the system copies itself (`sendfile`)."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cairnmq.broker.internal.answer import FileRange, Part, size_of
from cairnmq.broker.internal.link_timing import LAST_CHANCE_SECONDS
from cairnmq.broker.runtime import Executor
from cairnmq.types import Buffer

SMALL_BYTES = 64 << 10  # up to here a response leaves in one piece, file ranges are read into it
_PIECE_BYTES = 1 << 20
_TURN_BYTES = 4 << 20  # then others have their turn
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class FileEnded(OSError):
    """A file became shorter than what was promised of it."""


def read_cached(part: FileRange) -> bytes | None:
    """All of it, if that takes no wait for a disk."""
    room = bytearray(part.size)
    try:
        count = os.preadv(part.fd, [room], part.offset, _RWF_NOWAIT)
    except OSError:
        return None  # cold, or the file system cannot say: then it is sent in the other way
    return bytes(room) if count == part.size else None


def _joined(head: bytes, parts: Sequence[Part]) -> bytes | None:
    """One piece of all."""
    pieces: list[Buffer] = [head]
    for part in parts:
        piece = part if isinstance(part, memoryview) else read_cached(part)
        if piece is None:
            return None
        pieces.append(piece)
    return b"".join(pieces)


class FilePart:
    """A range of a file under a descriptor of its own: the owner may close his meanwhile."""

    __slots__ = ("_warm_end", "fd", "left", "offset")

    def __init__(self, part: FileRange) -> None:
        self.fd = os.dup(part.fd)
        self.offset = part.offset
        self.left = part.size
        self._warm_end = part.offset

    def next_piece(self) -> int:
        """How many bytes may be sent without a wait for a disk; 0: `warm` first."""
        if self.offset < self._warm_end:
            return self._warm_end - self.offset
        size = min(self.left, _PIECE_BYTES)
        if _RWF_NOWAIT and not (self._is_cached(self.offset) and self._is_cached(self.offset + size - 1)):
            return 0
        self._warm_end = self.offset + size
        return size

    def _is_cached(self, offset: int) -> bool:
        try:
            os.preadv(self.fd, [bytearray(1)], offset, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        return True

    def warm(self) -> None:
        """Reads the next piece, so that it is in the page cache. On a thread."""
        end = self.offset + min(self.left, _PIECE_BYTES)
        room = bytearray(end - self.offset)
        os.preadv(self.fd, [room], self.offset)
        self._warm_end = end

    def sent(self, count: int) -> None:
        """So much of it has left."""
        self.offset += count
        self.left -= count

    def close(self) -> None:
        """It is sent, or nobody wants it any more."""
        os.close(self.fd)


class SendQueue:
    """In order, as the socket takes it. `ended` is called once if it takes nothing any more. On the loop thread."""

    def __init__(
        self,
        sock: socket.socket,
        readers: Executor | None,
        stall_seconds: float,
        ended: Callable[[str | OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._readers = readers
        self._stall_seconds = stall_seconds
        self._ended = ended
        self._queue: deque[memoryview | FilePart] = deque()
        self._frames: deque[int] = deque()  # parts of each frame that have not left
        self._is_busy = False  # something calls `_pump` again: the socket, a thread or the next turn
        self._is_reading = False  # a thread uses the first part
        self._watches = False  # whether the loop tells when the socket takes more
        self._is_closed = False
        self._moved = 0.0
        self._stall: asyncio.TimerHandle | None = None

    def send(self, head: bytes, parts: Sequence[Part] = ()) -> None:
        """Memory must stay as it is until it has left; files are held open here."""
        if self._is_closed:
            return
        whole = _joined(head, parts) if parts and sum(map(size_of, parts)) < SMALL_BYTES else None
        if whole is not None:
            head, parts = whole, ()
        if not self._queue:
            self._moved = self._loop.time()
        items: list[memoryview | FilePart] = [memoryview(head)]
        try:
            for part in parts:
                if size_of(part):
                    items.append(part.cast("B") if isinstance(part, memoryview) else FilePart(part))
        except OSError:
            _close(items)
            raise
        self._queue.extend(items)
        self._frames.append(len(items))
        if not self._is_busy:
            self._pump()

    @property
    def unsent(self) -> int:
        """Frames that have not left yet."""
        return len(self._frames)

    def close(self) -> None:
        """What has not left is dropped. The socket is the owner's."""
        self._is_closed = True
        self._unwatch()
        if self._stall is not None:
            self._stall.cancel()
        if not self._is_reading:
            self._drop()

    def _drop(self) -> None:
        _close(self._queue)
        self._queue.clear()

    def _pump(self) -> None:
        self._is_busy = False
        budget = _TURN_BYTES
        try:
            while self._queue and not self._is_closed:
                if budget <= 0:
                    self._is_busy = True
                    if not self._watches:
                        self._loop.call_soon(self._pump)
                    return
                sent = self._send_some(self._queue[0])
                if sent is None:
                    return
                budget -= sent
        except BlockingIOError:
            self._is_busy = True
            self._watch()
        except OSError as error:
            self._ended(error)
        else:
            self._unwatch()

    def _send_some(self, item: memoryview | FilePart) -> int | None:
        """How much of it has left; None: a thread reads it first."""
        if isinstance(item, memoryview):
            sent = self._sock.send(item, socket.MSG_MORE if len(self._queue) > 1 else 0)
            self._queue[0] = item[sent:]
            done = sent == len(item)
        else:
            size = item.next_piece()
            if not size:
                self._read(item)
                return None
            sent = os.sendfile(self._sock.fileno(), item.fd, item.offset, size)
            if not sent:
                raise FileEnded(errno.EIO, f"a file ended {item.left} bytes before the end of what was to be sent")
            item.sent(sent)
            done = not item.left
        self._moved = self._loop.time()
        if done:
            _close([self._queue.popleft()])
            self._frames[0] -= 1
            if not self._frames[0]:
                self._frames.popleft()
        return sent

    def _read(self, item: FilePart) -> None:
        self._unwatch()
        self._is_busy = self._is_reading = True
        self._loop.run_in_executor(self._readers, item.warm).add_done_callback(self._was_read)

    def _was_read(self, done: asyncio.Future[None]) -> None:
        self._is_reading = False
        error = done.exception()
        if self._is_closed:
            self._drop()
        elif error is not None:
            self._ended(error if isinstance(error, OSError) else str(error))
        else:
            self._pump()

    def _watch(self) -> None:
        if not self._watches:
            self._watches = True
            self._loop.add_writer(self._sock, self._pump)
        if self._stall is None:
            self._stall = self._loop.call_later(self._stall_seconds, self._look)

    def _unwatch(self) -> None:
        if self._watches:
            self._watches = False
            self._loop.remove_writer(self._sock)

    def _look(self, warned: bool = False) -> None:
        """Whether the other side still takes anything. `warned`: it did not a moment ago. After this process stood
        still, what the socket takes now is seen only after the timers."""
        self._stall = None
        if not self._queue:
            return
        quiet = self._loop.time() - self._moved
        wait = self._stall_seconds - quiet
        if wait <= 0:
            if warned:
                self._ended(f"the other side took nothing for {quiet:.0f} s")
                return
            wait = LAST_CHANCE_SECONDS
        self._stall = self._loop.call_later(wait, self._look, quiet >= self._stall_seconds)


def _close(items: Iterable[memoryview | FilePart]) -> None:
    for item in items:
        if isinstance(item, FilePart):
            item.close()
