"""What came back on a link: a header that was understood, and raw bytes in memory that the link uses again."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from cairnmq.broker.internal.receive_memory import ReceiveMemory
from cairnmq.wire.internal import InstallTold, JournalTold
from cairnmq.wire.internal_transactions import ControlResponse


class Received:
    """`release` it when its bytes are not needed any more, or use it as a context manager; no view on them may be read
    after that."""

    __slots__ = ("_buffer", "_memory")

    def __init__(self) -> None:
        self._memory: ReceiveMemory | None = None
        self._buffer: bytearray | None = None

    def holds(self, buffer: bytearray | None, memory: ReceiveMemory) -> None:
        """Its bytes lie there; None: it has none."""
        self._buffer, self._memory = buffer, memory
        if buffer is None:
            memory.nothing_came()

    def release(self) -> None:
        """The bytes are not needed any more."""
        if self._buffer is not None and self._memory is not None:
            self._memory.give(self._buffer)
            self._buffer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Fetched(Received):
    """What a leader says of each journal, and the bytes that go with it."""

    __slots__ = ("_views", "journals")

    def __init__(self, journals: list[JournalTold], raw: memoryview) -> None:
        super().__init__()
        self.journals = journals
        self._views: dict[int, memoryview] = {}
        position = 0
        for told in journals:
            self._views[told.journal] = raw[position : position + told.size]
            position += told.size

    def data(self, journal: int) -> memoryview:
        """The raw bytes of a journal."""
        return self._views[journal]

    def release(self) -> None:
        self._views = {}
        super().release()


class Installed(Received):
    """A step of an install."""

    __slots__ = ("data", "told")

    def __init__(self, told: InstallTold, raw: memoryview) -> None:
        super().__init__()
        self.told = told.told
        self.data = raw

    def release(self) -> None:
        self.data = memoryview(b"")
        super().release()


class Answered(Received):
    """What the other broker answers to a request for control; it has no raw bytes."""

    __slots__ = ("response",)

    def __init__(self, response: ControlResponse) -> None:
        super().__init__()
        self.response = response
