"""The tables of docs/benchmarks.md say what was measured: medians, ranges, ratios the right way round."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import PAGE, ROWS, SUMMARY
from bench.pace import percentiles
from bench.page import put, rows_of
from bench.picture import bars
from bench.results import CAIRN, KAFKA, Measurement, Run, Store
from bench.table import Column, cell, comparison, figure, footing

PROBES = {
    "fdatasync_p50_ms": 0.2,
    "fdatasync_max_ms": 1.0,
    "write_mb_s": 500.0,
    "load_average": 0.5,
    "busy_percent": 2.0,
    "steal_percent": 0.1,
}
COLUMNS = (Column("mb_s", "MB/s"), Column("n", "count", compared=False))


def run_of(turns: list[tuple[str, str, int, float]], quick: bool = False) -> Run:
    taken = [
        Measurement(server, point, number, {point: {"mb_s": value, "n": 7.0}}, PROBES, "then")
        for server, point, number, value in turns
    ]
    return Run("sweep", quick, "abc", "a machine", "then", "later", taken)


THREE = [(CAIRN, "10", n, v) for n, v in ((1, 300.0), (2, 100.0), (3, 260.0))] + [
    (KAFKA, "10", n, v) for n, v in ((1, 130.0), (2, 120.0), (3, 400.0))
]


def test_a_comparison_has_medians_ranges_and_our_figure_over_kafkas() -> None:
    assert comparison(run_of(THREE), "partitions", COLUMNS).splitlines() == [
        "| partitions | server | MB/s | count |",
        "| --- | --- | --- | --- |",
        "| 10 | CairnMQ | 260 (100 to 300) | 7 |",
        "| 10 | Apache Kafka | 130 (120 to 400) | 7 |",
        "| 10 | ours / Kafka's | **2.00** |  |",
    ]


def test_a_quick_run_compares_nothing_and_says_why() -> None:
    quick = run_of(THREE, quick=True)
    assert "ours / Kafka's" not in comparison(quick, "partitions", COLUMNS)
    assert "no comparison" in footing(quick, "make bench")
    assert "no comparison" not in footing(run_of(THREE), "make bench")


def test_a_point_of_one_server_has_no_ratio() -> None:
    assert "ours / Kafka's" not in comparison(run_of(THREE[:3]), "partitions", COLUMNS)


def test_figures_keep_three_digits() -> None:
    assert [figure(value) for value in (0.0, 0.01234, 9.876, 99.94, 100.4, 123456.7)] == [
        *("0", "0.0123", "9.88", "99.9", "100", "123,457"),
    ]
    assert (cell([]), cell([5.0]), cell([2.0, 4.0])) == ("", "5", "3 (2 to 4)")


def test_footing_names_command_code_and_probes() -> None:
    text = footing(run_of(THREE), "make bench ROWS=sweep")
    for part in ("`make bench ROWS=sweep`", "abc", "3 turns", "fdatasync p50 0.2 ms", "500 MB/s", "other things 2 %"):
        assert part in text


def test_footing_warns_of_a_busy_machine() -> None:
    run = run_of(THREE)
    assert "busy with other things during" not in footing(run, "make bench")
    for turn in run.measurements:
        turn.probes = PROBES | {"busy_percent": 60.0}
    assert "busy with other things during" in footing(run, "make bench")


def test_only_the_rows_own_part_of_the_page_changes() -> None:
    page = "a\n<!-- bench:one -->\nold\n<!-- /bench:one -->\nb\n<!-- bench:two -->\nkept\n<!-- /bench:two -->\n"
    changed = put(page, "one", r"new \1")
    assert changed == page.replace("old", r"new \1")
    with pytest.raises(ValueError, match="0 places for row three"):
        put(page, "three", "text")


def test_every_row_has_its_place_on_the_page() -> None:
    assert sorted(rows_of(PAGE.read_text())) == sorted([*ROWS, SUMMARY])


def test_an_interrupted_run_goes_on_and_a_finished_one_begins_anew(tmp_path: Path) -> None:
    taken: list[int] = []

    def measure() -> dict[str, dict[str, float]]:
        taken.append(1)
        return {"10": {"mb_s": 1.0}}

    def store() -> Store:
        return Store("row", True, tmp_path, lambda: dict(PROBES), fill=lambda: None)

    store().take(CAIRN, "10", 1, measure)
    again = store()
    again.take(CAIRN, "10", 1, measure)
    assert len(taken) == 1
    again.take(CAIRN, "10", 2, measure)
    assert again.finish().series(CAIRN, "10", "mb_s") == [1.0, 1.0]
    assert store().run.measurements == []


def test_a_turn_waits_a_while_for_a_quiet_machine_and_says_how_busy_it_was(tmp_path: Path) -> None:
    seen = iter([90.0, 40.0, 3.0])
    store = Store("row", True, tmp_path, lambda: PROBES | {"busy_percent": 99.0}, lambda: next(seen), lambda: None)
    store.take(CAIRN, "10", 1, lambda: {"10": {"mb_s": 1.0}})
    assert store.run.measurements[0].probes["busy_percent"] == 3.0
    never = Store("row", True, tmp_path, lambda: PROBES | {"busy_percent": 99.0}, lambda: 50.0, lambda: None)
    never.take(CAIRN, "11", 1, lambda: {"11": {"mb_s": 1.0}})
    assert never.run.measurements[-1].probes["busy_percent"] == 50.0


def test_percentiles_are_of_the_slow_end() -> None:
    found = percentiles("x", [n * 1_000_000 for n in range(1000, 0, -1)])
    assert found == {"x_p50_ms": 501.0, "x_p99_ms": 991.0, "x_p999_ms": 1000.0}


def test_a_picture_is_well_formed_and_says_every_value() -> None:
    text = bars("A & B", ["10", "1,000"], {CAIRN: [10.0, 20.0], KAFKA: [5.0, None]})
    words = [element.text for element in ElementTree.fromstring(text).iter() if element.text]
    assert {"A & B", "10", "1,000", "20", "5"} <= set(words)
    rectangles = [element for element in ElementTree.fromstring(text).iter() if element.tag.endswith("rect")]
    ten, five, twenty = [float(bar.attrib["height"]) for bar in rectangles[3:]]  # behind the ground and two names
    assert (ten / twenty, five / twenty) == pytest.approx((0.5, 0.25), abs=0.01)
