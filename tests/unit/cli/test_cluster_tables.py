"""`cairn cluster brokers`, `journals` and the lines of `info` in a cluster."""

from __future__ import annotations

import json

import pytest

from cairnmq.cli.main import main
from scripted_cluster import ScriptedCluster


def run(cluster: ScriptedCluster, *words: str) -> int:
    with cluster.running() as bootstrap:
        return main(["cluster", *words, "-b", bootstrap])


def cells(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.down, cluster.leaders, cluster.isr = {3}, {1: 1, 2: 2, 3: 1}, dict.fromkeys((1, 2, 3), [1, 2])
    assert run(cluster, "brokers") == 0
    heading, *rows = cells(capsys)
    assert heading == ["BROKER", "STATE", "ADDRESS", "RACK", "LEADS", "HOSTS", "IN-SYNC", "SEEN", "CONTROLLER"]
    assert [row[:2] + row[4:] for row in rows] == [
        ["1", "live", "2", "3", "3", "0.2", "s", "ago", "yes"],
        ["2", "live", "1", "3", "3", "0.2", "s", "ago", "-"],
        ["3", "down", "0", "3", "0", "-", "-"],
    ]


def test_journals(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.isr, cluster.behind = {2: [1, 2]}, {(2, 3): 4096}
    assert run(cluster, "journals") == 0
    heading, *rows = cells(capsys)
    assert heading[:5] == ["JOURNAL", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC"] and heading[-1] == "BEHIND"
    assert rows[0][:5] == ["1", "1", "20", "1,2,3", "1,2,3"] and rows[0][-1] == "-"
    assert rows[1][3:5] == ["2,3,1", "2,1"] and rows[1][-5:] == ["3:", "4.0", "KiB,", "0.1", "s"]


def test_some_journals(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ScriptedCluster(), "journals", "2", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["journal"], row["leader"]) == (2, 2)
    assert run(ScriptedCluster(), "journals", "2", "9") == 1
    shown = capsys.readouterr()
    assert shown.err == "cairn: journal 9 does not exist; there are journals 1-3\n"
    assert [line.split()[0] for line in shown.out.splitlines()] == ["JOURNAL", "2"]
    assert run(ScriptedCluster(), "journals", "9", "99") == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "cairn: journals 9, 99 do not exist; there are journals 1-3\n")


def test_info_counts_journals_and_names_who_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.down, cluster.leaders = {3}, {1: 1, 2: 2, 3: 1}
    assert run(cluster, "info") == 0
    assert cells(capsys)[:6] == [
        ["cluster", "the-id"],
        ["controller", "1"],
        ["topics", "1"],
        ["partitions", "3"],
        ["journals", "3"],
        ["down", "3"],
    ]
    assert run(cluster, "info", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["journals"], told["brokers_down"], len(told["brokers"])) == (3, [3], 2)


def test_watching_takes_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "journals", "--watch"]) == 2
    assert "--watch needs a terminal" in capsys.readouterr().err
