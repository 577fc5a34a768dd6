"""Bytes of a response are there until it is released, and their memory is used again."""

from __future__ import annotations

import pytest

from cairnmq.broker.internal.receive_memory import ReceiveMemory
from cairnmq.broker.internal.received import Fetched, Installed
from cairnmq.wire.internal import InstallPiece, InstallTold, JournalTold, NotLeader


def test_each_journal_has_its_part() -> None:
    raw = memoryview(b"abcdef")
    with Fetched(
        [JournalTold(1, NotLeader(), 2), JournalTold(2, NotLeader()), JournalTold(3, NotLeader(), 4)], raw
    ) as one:
        assert [bytes(one.data(journal)) for journal in (1, 2, 3)] == [b"ab", b"", b"cdef"]
    with pytest.raises(KeyError):
        one.data(1)


def test_memory_is_given_back_once() -> None:
    memory = ReceiveMemory()
    buffer = memory.take(5)
    with Installed(InstallTold(InstallPiece()), memoryview(buffer)[:5]) as one:
        one.holds(buffer, memory)
        assert len(one.data) == 5 and one.told == InstallPiece()
    one.release()
    assert one.data == b"" and memory.take(5) is buffer and memory.take(5) is not buffer
