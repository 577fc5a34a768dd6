"""What leaves over a socket: in order, in few pieces, without waiting for a disk on the loop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from cairnmq.broker.internal import send_queue
from cairnmq.broker.internal.send_queue import SMALL_BYTES, FilePart, SendQueue
from unit.broker.internal.link_rig import Range, on_both_loops, write_file
from unit.broker.rig import until


class Ends:
    """A send queue, the other end of its socket, and why it ended."""

    def __init__(self, stall_seconds: float) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.readers = ThreadPoolExecutor(1)
        self.ended: list[str | OSError] = []
        self.queue = SendQueue(self.near, self.readers, stall_seconds, self.ended.append)

    async def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += await asyncio.get_running_loop().sock_recv(self.far, 1 << 20)
        return bytes(data)


@contextmanager
def open_ends(stall_seconds: float = 30) -> Iterator[Ends]:
    ends = Ends(stall_seconds)
    try:
        yield ends
    finally:
        ends.queue.close()
        ends.near.close()
        ends.far.close()
        ends.readers.shutdown()


def open_files(directory: Path) -> int:
    """In there: what earlier tests left in this process may open and close others at any moment."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since
            found += os.readlink(f"/proc/self/fd/{name}").startswith(f"{directory}/")
    return found


@on_both_loops
async def test_bytes_files_and_memory_leave_in_order(tmp_path: Path) -> None:
    data = write_file(tmp_path / "file", 9 << 20)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        before = open_files(tmp_path)
        ends.queue.send(b"head", [Range(file.fileno(), 3, 8 << 20), memoryview(b"memory"), Range(file.fileno(), 0, 5)])
        ends.queue.send(b"next")
        assert ends.queue.unsent == 2
        expected = b"head" + data[3 : 3 + (8 << 20)] + b"memory" + data[:5] + b"next"
        assert await ends.receive(len(expected)) == expected
        assert ends.queue.unsent == 0
        assert open_files(tmp_path) == before


@on_both_loops
async def test_a_file_may_be_closed_and_removed_meanwhile(tmp_path: Path) -> None:
    data = write_file(tmp_path / "file", 4 << 20)
    with open_ends() as ends:
        with (tmp_path / "file").open("rb") as file:
            ends.queue.send(b"", [Range(file.fileno(), 0, 4 << 20)])
        (tmp_path / "file").unlink()
        (tmp_path / "other").write_bytes(bytes(4 << 20))
        with (tmp_path / "other").open("rb"):  # takes the number of the closed one
            assert await ends.receive(4 << 20) == data


@on_both_loops
async def test_a_small_response_is_one_piece(tmp_path: Path) -> None:
    data = write_file(tmp_path / "file", SMALL_BYTES)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps what was sent apart
    with closing(near), closing(far), (tmp_path / "file").open("rb") as file:
        near.setblocking(False)
        queue = SendQueue(near, None, 30, lambda error: None)
        queue.send(b"head", [Range(file.fileno(), 10, 1000), memoryview(b"m" * 10), Range(file.fileno(), 0, 1000)])
        assert far.recv(1 << 20) == b"head" + data[10:1010] + b"m" * 10 + data[:1000]
        queue.close()


@on_both_loops
async def test_cold_bytes_are_read_on_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 3 << 20
    data = write_file(tmp_path / "file", size)
    warmed: list[int] = []
    monkeypatch.setattr(FilePart, "_is_cached", lambda part, offset: False)
    monkeypatch.setattr(send_queue, "read_cached", lambda part: None)
    warm = FilePart.warm

    def spy(part: FilePart) -> None:
        warmed.append(part.offset)
        warm(part)

    monkeypatch.setattr(FilePart, "warm", spy)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        ends.queue.send(b"head", [Range(file.fileno(), 0, size)])
        ends.queue.send(b"small", [Range(file.fileno(), 0, 10)])
        assert await ends.receive(4 + size + 15) == b"head" + data + b"small" + data[:10]
    assert warmed == [0, 1 << 20, 2 << 20, 0]


@on_both_loops
async def test_closing_waits_for_the_thread_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor's number may belong to another file by then."""
    write_file(tmp_path / "file", 1 << 20)
    loop = asyncio.get_running_loop()
    begun, go_on = asyncio.Event(), threading.Event()
    monkeypatch.setattr(FilePart, "_is_cached", lambda part, offset: False)

    def warm(part: FilePart) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        os.fstat(part.fd)

    monkeypatch.setattr(FilePart, "warm", warm)
    before = open_files(tmp_path)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        held = open_files(tmp_path)
        ends.queue.send(b"head", [Range(file.fileno(), 0, 1 << 20)])
        await begun.wait()
        ends.queue.close()
        assert open_files(tmp_path) > held
        go_on.set()
        await until(lambda: open_files(tmp_path) <= held)
        assert ends.ended == []
    await until(lambda: open_files(tmp_path) <= before)


@on_both_loops
async def test_a_read_that_fails_ends_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "file", 1 << 20)
    monkeypatch.setattr(FilePart, "_is_cached", lambda part, offset: False)

    def warm(part: FilePart) -> None:
        raise OSError(5, "broken disk")

    monkeypatch.setattr(FilePart, "warm", warm)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        ends.queue.send(b"head", [Range(file.fileno(), 0, 1 << 20)])
        await until(lambda: ends.ended)
        assert [str(error) for error in ends.ended] == ["[Errno 5] broken disk"]


@on_both_loops
async def test_a_file_that_became_shorter_ends_the_queue(tmp_path: Path) -> None:
    write_file(tmp_path / "file", 1 << 20)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        ends.queue.send(b"head", [Range(file.fileno(), 0, 2 << 20)])
        await ends.receive(4 + (1 << 20))
        await until(lambda: ends.ended)
        assert "1048576 bytes before the end" in str(ends.ended[0])


@on_both_loops
async def test_a_side_that_takes_nothing_ends_the_queue() -> None:
    with open_ends(stall_seconds=0.05) as ends:
        ends.queue.send(b"x", [memoryview(bytes(8 << 20))])
        await until(lambda: ends.ended)
        assert ends.ended == ["the other side took nothing for 0 s"]


@on_both_loops
async def test_a_slow_side_is_waited_for() -> None:
    size = 8 << 20
    with open_ends(stall_seconds=0.5) as ends:
        ends.queue.send(b"x", [memoryview(bytes(size))])
        got = 0
        while got < size:
            await asyncio.sleep(0.01)
            got += len(await ends.receive(1))
        assert ends.ended == []


@on_both_loops
async def test_a_closed_socket_ends_the_queue() -> None:
    with open_ends() as ends:
        ends.far.close()
        ends.queue.send(b"x", [memoryview(bytes(8 << 20))])
        assert isinstance(ends.ended[0], BrokenPipeError)


@on_both_loops
async def test_what_is_closed_drops_its_files(tmp_path: Path) -> None:
    write_file(tmp_path / "file", 8 << 20)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        before = open_files(tmp_path)
        ends.queue.send(b"x", [Range(file.fileno(), 0, 8 << 20)] * 3)
        assert open_files(tmp_path) > before
        ends.queue.close()
        assert open_files(tmp_path) == before
        ends.queue.send(b"x", [Range(file.fileno(), 0, 8 << 20)])
        assert open_files(tmp_path) == before


@on_both_loops
async def test_a_file_that_cannot_be_held_open_sends_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "file", 1 << 20)
    with open_ends() as ends, (tmp_path / "file").open("rb") as file:
        before = open_files(tmp_path)
        with pytest.raises(OSError):
            ends.queue.send(b"x", [Range(file.fileno(), 0, 1 << 20), Range(-1, 0, 1 << 20)])
        assert open_files(tmp_path) == before
        ends.queue.send(b"whole")
        assert await ends.receive(5) == b"whole"
