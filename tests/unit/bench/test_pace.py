"""An open loop sends by the clock alone; how a burst ended is told from windows."""

from __future__ import annotations

from bench.burst import WINDOW_NS, seconds_until_normal, window_p99s
from bench.latency import AFTER, OFF, ON, spread
from bench.pace import Phase, Sample, between, due_times, stamp, stamped
from bench.results import CAIRN, Measurement, Run


def test_due_times_follow_the_rates_of_the_phases() -> None:
    times = list(due_times(1000, [Phase(1, 2), Phase(1, 4)]))
    assert times == [1000, 500_001_000, 1_000_001_000, 1_250_001_000, 1_500_001_000, 1_750_001_000]


def test_a_record_carries_when_it_was_due() -> None:
    assert stamped(stamp(123_456_789) + bytes(100)) == 123_456_789


def test_samples_are_cut_by_when_they_were_due() -> None:
    samples = [Sample(1, 10), Sample(5, 50), Sample(9, 90)]
    assert (between(samples, 5), between(samples, 0, 5)) == ([50, 90], [10])


def test_windows_count_from_their_beginning_and_leave_out_what_is_outside() -> None:
    samples = [Sample(99, 1), Sample(100, 5), Sample(100 + WINDOW_NS, 7), Sample(101 + WINDOW_NS, 3)]
    assert window_p99s(samples, 100, 100 + 2 * WINDOW_NS) == [5, 7]
    assert window_p99s(samples, 100, 100 + WINDOW_NS) == [5]


def test_back_to_normal_is_the_first_second_that_is_not_twice_as_slow() -> None:
    assert seconds_until_normal([1, 3, 90], [9, 9, 9, 6, 50, 6, 6, 6]) == 0.75
    assert seconds_until_normal([1, 3, 4], [2, 2, 2, 9]) == 0.0
    assert seconds_until_normal([1], [9, 9, 9, 9]) == 1.0


def test_spread_is_that_of_the_figure_that_differs_most() -> None:
    points = {ON: {"a": 10.0, "b": 5.0}, OFF: {"a": 11.0, "b": 4.0}, AFTER: {"a": 10.0, "b": 6.0}}
    run = Run("latency", False, "", "", "", "", [Measurement(CAIRN, "all", 1, points, {}, "")])
    assert spread(run, ("a",)) == 1.1
    assert spread(run, ("a", "b")) == 1.5
    assert spread(run, ("c",)) is None
