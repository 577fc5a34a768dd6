"""What a leader responds: to a ReplicaFetch one statement for each journal, and the bytes that go with it; to a step of
an install what it told, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from cairnmq.wire.internal import RAW_BYTES_MAX, InstallTold, JournalTold


class FileRange(Protocol):
    """Bytes of a file that never change; `fd` is open at least until the response is handed over. -1: the system does
    not know the file, so its `content` is sent."""

    @property
    def fd(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def content(self) -> memoryview: ...


Part: TypeAlias = FileRange | memoryview


def size_of(part: Part) -> int:
    """In bytes."""
    return part.nbytes if isinstance(part, memoryview) else part.size


def _sendable(part: Part) -> Part:
    return part if isinstance(part, memoryview) or part.fd >= 0 else part.content()


class Answer(Struct):
    """`parts[i]` are the bytes of `told[i]`, together as many as its `size` says. They are sent as they are: nobody
    looks into them. Without anything: a later request took the place of this one."""

    told: list[JournalTold] = []
    parts: Sequence[Sequence[Part]] = ()

    def checked(self, max_bytes: int) -> list[Part]:
        """All parts in order. An answer that contradicts itself would be read as other journals' bytes."""
        sizes = [sum(map(size_of, parts)) for parts in self.parts]
        told = [one.size for one in self.told]
        if sizes + [0] * (len(told) - len(sizes)) != told:
            raise ValueError(f"the sizes told are {told}, those of the parts {sizes}")
        if sum(sizes) > max_bytes:
            raise ValueError(f"{sum(sizes)} bytes are more than the {max_bytes} that were asked for")
        return [_sendable(part) for parts in self.parts for part in parts]


class InstallAnswer(Struct):
    """A batch that is larger than what was asked for comes as a whole."""

    told: InstallTold
    parts: Sequence[memoryview] = ()

    def checked(self) -> list[Part]:
        """All parts in order."""
        size = sum(map(size_of, self.parts))
        if size > RAW_BYTES_MAX:
            raise ValueError(f"{size} bytes are more than a frame may have")
        return list(self.parts)
