"""Whom to cut off, by what the connection sees and the time."""

from __future__ import annotations

from cairnmq.broker.net.slow_client import PRESSED_SECONDS, SLOW_BYTES, SlowClientPolicy


def stalled(seconds: float = 60.0) -> SlowClientPolicy:
    policy = SlowClientPolicy(seconds)
    policy.restart()
    return policy


def test_reader_that_stopped() -> None:
    policy = stalled()
    asked = [policy.reads_too_slowly(now, 1000, others_wait=False) for now in (100, 159, 160)]
    assert asked == [False, False, True]


def test_reader_that_moves_on() -> None:
    policy = stalled()
    unsent = 1_000_000
    for now in range(0, 500, 50):
        unsent -= 1
        assert not policy.reads_too_slowly(now, unsent, others_wait=False)


def test_reader_must_move_more_while_others_wait() -> None:
    policy = stalled()
    assert not policy.reads_too_slowly(0, 1_000_000, others_wait=True)
    assert not policy.reads_too_slowly(2, 1_000_000 - SLOW_BYTES - 1, others_wait=True)
    assert policy.reads_too_slowly(2 + PRESSED_SECONDS, 1_000_000 - 2 * SLOW_BYTES, others_wait=True)


def test_restart_forgets_what_was_unsent() -> None:
    policy = stalled()
    assert not policy.reads_too_slowly(0, 10, others_wait=False)
    policy.restart()
    assert not policy.reads_too_slowly(60, 5000, others_wait=False)


def test_request_that_does_not_arrive() -> None:
    policy = SlowClientPolicy(60)
    assert not policy.sends_too_slowly(1, 500, 1 << 20), "it has until the next look but one"
    assert policy.sends_too_slowly(1, 500 + SLOW_BYTES - 1, 1 << 20)


def test_request_that_arrives() -> None:
    policy = SlowClientPolicy(60)
    assert not any(policy.sends_too_slowly(1, look * SLOW_BYTES, 1 << 20) for look in range(10))
    assert not policy.sends_too_slowly(1, 1 << 20, 1 << 20), "whole: it waits for memory, not for the client"


def test_another_request_has_its_own_time() -> None:
    policy = SlowClientPolicy(60)
    policy.sends_too_slowly(1, 1 << 20, 2 << 20)
    assert not policy.sends_too_slowly(2, 500, 2 << 20)
