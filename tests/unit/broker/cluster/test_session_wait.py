"""Waiting for sessions: of the dead until they end, of the living until they show it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from cairnmq.broker.cluster.session_wait import Obstacle, SessionWait
from cairnmq.errors import Unreachable
from cairnmq.metadata.cluster_records import live_key
from cairnmq.metadata.store import Away
from unit.broker.cluster.brokers import SESSION_MS, Machines

PATIENCE_MS = 2 * SESSION_MS


def waiting(machines: Machines, sleep: Callable[[float], None] | None = None) -> SessionWait:
    """A new process that waits for broker 1."""
    store = machines.store()
    session = store.session(SESSION_MS)
    assert not isinstance(session, Away)
    obstacle = Obstacle(live_key(1), "broker 1 is there", "no")
    return SessionWait(store, obstacle, session, PATIENCE_MS, machines.time, sleep or machines.time.sleep)


def test_who_renews_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines()
    one = machines.broker(1)
    with caplog.at_level(logging.INFO):
        wait = waiting(machines, lambda seconds: machines.pass_ms(int(seconds * 1000), one))
    assert "broker 1 is there; waiting up to 12 s for its end" in caplog.text
    assert wait.is_over()


def test_the_dead_are_waited_for() -> None:
    machines = Machines()
    machines.broker(1)
    wait, before_ms = waiting(machines), machines.time.now_ms
    while machines.state.find(live_key(1)) is not None:
        assert not wait.is_over()
    assert machines.time.now_ms - before_ms <= SESSION_MS * 1.5


def test_time_that_a_silent_store_gave_everybody_is_no_renewal() -> None:
    """This process stood still, and nobody else wrote."""
    machines = Machines()
    machines.broker(1)
    wait = waiting(machines, lambda seconds: machines.time.sleep(SESSION_MS * 0.6 / 1000))
    assert not wait.is_over() and machines.state.find(live_key(1)) is not None


def test_patience_ends_and_so_does_the_store() -> None:
    machines = Machines()
    machines.broker(1)
    assert waiting(machines, lambda seconds: machines.time.sleep(PATIENCE_MS / 1000)).is_over()
    wait = waiting(machines)
    wait._store.away = True  # type: ignore[attr-defined]
    with pytest.raises(Unreachable):
        wait.is_over()
