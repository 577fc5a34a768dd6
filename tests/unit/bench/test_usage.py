"""When a server came to rest is told from its CPU time, second by second."""

from __future__ import annotations

from bench.usage import QUIET_SHARE, Calm


def test_quiet_begins_when_work_ends_and_its_own_cost_is_left_out() -> None:
    calm = Calm.begin(0.0, 10.0)
    calm.look(1.0, 11.0)
    calm.look(2.0, 11.01)
    calm.look(3.0, 11.02)
    assert (calm.since, calm.cpu, calm.lasts) == (1.0, 11.0, 2.0)


def test_work_that_was_put_off_begins_it_anew() -> None:
    calm = Calm.begin(0.0, 10.0)
    calm.look(4.0, 10.0)
    calm.look(5.0, 10.0 + QUIET_SHARE * 1.5)
    assert (calm.since, calm.lasts) == (5.0, 0.0)
    calm.look(6.0, calm.cpu)
    assert calm.lasts == 1.0


def test_a_late_look_asks_for_no_less_quiet() -> None:
    calm = Calm.begin(0.0, 0.0)
    calm.look(10.0, 9 * QUIET_SHARE)
    assert calm.lasts == 10.0
    calm.look(20.0, 19.5 * QUIET_SHARE)
    assert calm.lasts == 0.0
