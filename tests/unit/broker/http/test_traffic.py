"""Rates of the whole broker, for who opens the page."""

from __future__ import annotations

from cairnmq.broker.http.traffic import STEPS, Traffic


class Counters:
    """A clock and two counters, moved by hand."""

    def __init__(self) -> None:
        self.now, self.totals = 100.0, (1000, 500)
        self.traffic = Traffic(lambda: self.now, lambda: self.totals)

    def pass_by(self, seconds: float, bytes_in: int, bytes_out: int) -> None:
        self.now += seconds
        self.totals = self.totals[0] + bytes_in, self.totals[1] + bytes_out


def test_a_rate_from_the_first_question_on() -> None:
    counters = Counters()
    assert counters.traffic.rates() == (0.0, 0.0)
    counters.traffic.look()
    counters.pass_by(1.5, 300, 30)
    assert counters.traffic.rates() == (200.0, 20.0)


def test_a_sample_that_is_too_young_is_passed_over() -> None:
    """Two looks a moment apart would make a burst of whatever came between."""
    counters = Counters()
    counters.traffic.look()
    counters.pass_by(2.0, 200, 0)
    counters.traffic.look()
    counters.pass_by(0.001, 100, 0)
    assert round(counters.traffic.rates()[0]) == 150


def test_the_history_is_bounded_and_in_order() -> None:
    counters = Counters()
    for step in range(3 * STEPS):
        counters.traffic.look()
        counters.pass_by(2.0, 2 * step, 4 * step)
    history = counters.traffic.history()
    assert len(history) == STEPS
    assert history[-1] == (3 * STEPS - 2, 2 * (3 * STEPS - 2))
    assert history == sorted(history)


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    counters = Counters()
    counters.traffic.look()
    counters.traffic.look()
    assert counters.traffic.history() == [(0.0, 0.0)]
