"""Buffers are used again, and a rare large one is not kept."""

from __future__ import annotations

from cairnmq.broker.internal.receive_memory import ReceiveMemory


def test_a_buffer_is_used_again() -> None:
    memory = ReceiveMemory()
    first = memory.take(1 << 20)
    assert len(first) == 1 << 20
    assert memory.take(1 << 20) is not first
    memory.give(first)
    assert memory.take(100) is first


def test_a_buffer_that_is_too_small_is_not_given() -> None:
    memory = ReceiveMemory()
    memory.give(memory.take(100_000))
    assert len(memory.take(200_000)) >= 200_000


def test_the_two_largest_are_kept() -> None:
    memory = ReceiveMemory()
    buffers = [memory.take(size << 20) for size in (1, 4, 2)]
    for buffer in buffers:
        memory.give(buffer)
    assert [memory.take(1), memory.take(1)] == [buffers[2], buffers[1]]
    assert all(memory.take(1) is not buffer for buffer in buffers)


def test_a_huge_buffer_is_given_back_to_the_system() -> None:
    memory = ReceiveMemory()
    huge = memory.take(17 << 20)
    assert len(huge) == 32 << 20
    memory.give(huge)
    assert memory.take(1) is not huge


def test_no_bytes_need_no_buffer() -> None:
    memory = ReceiveMemory()
    nothing = memory.take(0)
    assert len(nothing) == 0
    memory.give(nothing)
    assert len(memory.take(1)) > 1


def test_a_link_at_rest_holds_no_memory() -> None:
    memory = ReceiveMemory()
    buffer = memory.take(1 << 20)
    memory.give(buffer)
    for _ in range(19):
        memory.nothing_came()
    assert memory.take(1) is buffer
    memory.give(buffer)
    for _ in range(19):
        memory.nothing_came()
    assert memory._kept == [buffer]
    memory.nothing_came()
    assert memory._kept == []
