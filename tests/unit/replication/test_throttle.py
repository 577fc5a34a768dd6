"""Bytes per second, whatever the sizes of the pieces."""

from __future__ import annotations

import pytest

from cairnmq.replication.throttle import BURST_MS, Throttle


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_the_rate_holds_over_time(size: int) -> None:
    throttle, now_ms, sent = Throttle(), 1_000_000.0, 0
    while now_ms < 1_010_000 or not sent:
        sent += size
        now_ms += throttle.wait_ms(size, 100_000, int(now_ms))
    seconds = (now_ms - 1_000_000 + BURST_MS) / 1000
    assert 0.95 <= sent / 100_000 / seconds <= 1.05


def test_a_pause_gives_no_credit_for_later() -> None:
    throttle = Throttle()
    throttle.wait_ms(1000, 1000, 0)
    assert throttle.wait_ms(10_000, 1000, 60_000) == 10_000 - BURST_MS


def test_another_rate_holds_at_once() -> None:
    throttle = Throttle()
    assert throttle.wait_ms(1000, 1000, 0) == 1000
    assert throttle.wait_ms(1000, 1_000_000, 1000) == 1
