"""How long a leader may acknowledge acks=1."""

from __future__ import annotations

from cairnmq.replication.lease import Lease


def test_two_thirds_of_a_session() -> None:
    lease = Lease(6_000, now_ms=1_000)
    assert lease.holds(4_999) and not lease.holds(5_000)


def test_the_time_of_the_request_counts_and_never_goes_back() -> None:
    lease = Lease(6_000, now_ms=1_000)
    lease.confirm(3_000)
    lease.confirm(2_000)
    assert lease.holds(6_999) and not lease.holds(7_000)
