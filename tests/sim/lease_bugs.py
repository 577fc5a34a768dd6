"""Bugs of leases, planted one at a time: the simulation of suspended machines must find each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.replication.messages import FetchPosition
from cairnmq.replication.records import Member
from cairnmq.testing.replicas.broker_process import BrokerProcess
from cairnmq.testing.replicas.lease_process import LeaseProcess

Plant = Callable[[pytest.MonkeyPatch], None]


def lease_counts_from_the_response_of_the_store(patch: pytest.MonkeyPatch) -> None:
    """Instead of from the request: the response may have waited for as long as the process stood still."""
    renewed = LeaseProcess.renewed

    def late(process: LeaseProcess, me: Member, sent_ms: int, is_alive: bool) -> None:
        renewed(process, me, process.now_ms(), is_alive)

    patch.setattr(LeaseProcess, "renewed", late)


def lease_counts_from_the_request_of_a_follower(patch: pytest.MonkeyPatch) -> None:
    """Instead of from the response that it follows: it too may have waited in a socket."""
    asked_of = BrokerProcess.asked

    def late(process: BrokerProcess, journal: int, asked: FetchPosition, follower: BrokerProcess) -> None:
        hosted = process.hosted[journal]
        leader, lease = hosted.leader, hosted.lease
        if leader is not None and lease is not None and asked.epoch == leader.epoch and asked.echo_ms:
            lease.confirm(process.now_ms())
        asked_of(process, journal, asked, follower)

    patch.setattr(BrokerProcess, "asked", late)


def lease_goes_on_after_a_suspend(patch: pytest.MonkeyPatch) -> None:
    """Its clock stands still while the machine is suspended."""
    patch.setattr(LeaseProcess, "now_ms", LeaseProcess.steady_ms)
