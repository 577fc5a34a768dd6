"""Histograms and the Prometheus text."""

from __future__ import annotations

from cairnmq.broker.metric_table import Metric
from cairnmq.broker.metrics import Exposition, Histogram, Sample


def test_observations_fall_below_their_upper_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.000_015, 0.000_016, 0.001, 100.0):
        histogram.observe(seconds)
    rows = dict(histogram.cumulative())
    assert rows[16e-6] == 2
    assert rows[64e-6] == 3
    assert rows[1.024e-3] == 4
    assert max(rows.values()) == 4  # 100 s is only in +Inf
    assert histogram.count == 5
    assert histogram.seconds == sum((0.0, 0.000_015, 0.000_016, 0.001, 100.0))


def test_bounds_never_change() -> None:
    empty, used = Histogram(), Histogram()
    used.observe(0.5)
    assert [bound for bound, _ in empty.cumulative()] == [bound for bound, _ in used.cumulative()]


def test_quantiles() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) == 0
    for _ in range(99):
        histogram.observe(0.001)
    histogram.observe(1.0)
    assert 0.001 <= histogram.quantile(0.5) <= 0.00205
    assert 1.0 <= histogram.quantile(0.999) <= 2.1


def test_adding() -> None:
    one, other = Histogram(), Histogram()
    one.observe(0.1)
    other.observe(0.2)
    other.observe(3.0)
    one.add(other)
    assert one.count == 3 and abs(one.seconds - 3.3) < 1e-9 and other.count == 2


def test_text() -> None:
    names = {"a": "gauge", "b": "gauge", "c_seconds": "histogram", "d": "gauge"}
    out = Exposition({name: Metric(kind, "", f"What {name} is.") for name, kind in names.items()})
    out.value("a", 1.5)
    out.series("b", [Sample(2, {"topic": 'x"y\\z\n'}), Sample(2**40)])
    out.begin("d")
    out.partitions("d", {"topic": 'x"y'}, [(0, 3), (7, 2**40)])
    histogram = Histogram()
    histogram.observe(0.001)
    out.histogram("c_seconds", [({"api": "Fetch"}, histogram)])
    lines = out.text().splitlines()
    assert lines[:3] == ["# HELP a What a is.", "# TYPE a gauge", "a 1.5"]
    assert 'b{topic="x\\"y\\\\z\\n"} 2' in lines
    assert f"b {2**40}" in lines
    assert 'd{topic="x\\"y",partition="0"} 3' in lines
    assert f'd{{topic="x\\"y",partition="7"}} {2**40}' in lines
    assert "# TYPE c_seconds histogram" in lines
    assert 'c_seconds_bucket{api="Fetch",le="+Inf"} 1' in lines
    assert 'c_seconds_sum{api="Fetch"} 0.001' in lines
    assert 'c_seconds_count{api="Fetch"} 1' in lines
