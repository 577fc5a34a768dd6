"""`cairn cluster health` of a cluster: one screen says what is wrong, and what a death would cost."""

from __future__ import annotations

import json

import pytest

from cairnmq.cli.main import main
from scripted_cluster import ScriptedCluster


def health(cluster: ScriptedCluster, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    with cluster.running() as bootstrap:
        code = main(["cluster", "health", "-b", bootstrap, *more])
    return code, capsys.readouterr().out


def test_a_healthy_cluster_and_what_deaths_would_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = health(ScriptedCluster(), capsys)
    lines = out.splitlines()
    assert code == 0 and lines[:2] == ["healthy", ""]
    assert lines[2].split()[:2] == ["BROKER", "STATE"]
    assert lines[7:] == [
        "IF IT DIED NOW",
        "broker 1: journal 1 would move; no record acknowledged with acks=all is lost",
        "broker 2: journal 2 would move; no record acknowledged with acks=all is lost",
        "broker 3: journal 3 would move; no record acknowledged with acks=all is lost",
    ]


def test_a_broker_that_died(capsys: pytest.CaptureFixture[str]) -> None:
    """Journal 3 had it alone in sync."""
    cluster = ScriptedCluster()
    cluster.down, cluster.leaders, cluster.isr = {3}, {1: 1, 2: 2, 3: 3}, {1: [1, 2], 2: [1, 2], 3: [3]}
    code, out = health(cluster, capsys)
    assert code == 1
    assert out.splitlines()[:4] == [
        "unhealthy",
        "  journal 3: no leader; waiting for broker 3, in sync and down. Start it, or see `cairn cluster elect "
        "--unclean J`",
        "  broker 3 is down",
        "  broker 3 is not in sync: journals 1, 2, 2 of 3 replicas left",
    ]
    assert out.splitlines()[4] == "  partitions without a leader: 1"
    assert "broker 1: journal 1 would move" in out and "broker 3:" not in out


def test_a_broker_that_is_deaf_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.deaf = {2}
    code, out = health(cluster, capsys)
    assert code == 1 and out.count("broker 2 does not answer: ") == 1
    assert "an unknown number of bytes are not on all in-sync replicas yet" in out, "only broker 2 knows of journal 2"


def test_what_needs_nobody_is_marked_as_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.leaders = {1: 1, 2: 1, 3: 3}
    code, out = health(cluster, capsys)
    assert code == 0
    assert out.splitlines()[:2] == ["healthy", "  note: journal 2: led by another broker than the preferred one"]


def test_who_is_down_is_not_asked_for_its_disks(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be suspended, and each question would be waited for."""
    cluster = ScriptedCluster()
    cluster.expired, cluster.leaders = {3}, {1: 1, 2: 2, 3: 1}
    code, out = health(cluster, capsys)
    assert code == 1 and "  broker 3 is down" in out
    assert cluster.asked_for_disks == [1, 2]


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = health(ScriptedCluster(), capsys, "--json")
    told = json.loads(out)
    assert (code, told["healthy"], told["reasons"], told["asked"]) == (0, True, [], "protocol")
    assert [row["broker"] for row in told["brokers"]] == [1, 2, 3]
    assert told["journals"][0]["replicas"][1] == {
        "broker": 2,
        "in_sync": True,
        "live": True,
        "lag_bytes": 0,
        "lag_ms": 50,
        "unsplit_bytes": None,
        "unsplit_percent": None,
        "free_bytes": None,
        "slows_producers": False,
    }
    assert told["if_it_died_now"][0]["moves"] == [1]
