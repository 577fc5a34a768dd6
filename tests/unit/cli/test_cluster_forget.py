"""`cairn cluster forget`: what the broker says of it."""

from __future__ import annotations

import json

import pytest

from cairnmq.cli.main import main
from scripted_cluster import ScriptedCluster


def forget(cluster: ScriptedCluster, *words: str) -> int:
    with cluster.running() as bootstrap:
        return main(["cluster", "forget", *words, "-b", bootstrap])


def test_a_broker_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    assert forget(cluster, "9") == 0 and cluster.forgotten == [9]
    assert capsys.readouterr().err == "broker 9 is forgotten\n"
    assert forget(cluster, "9", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"forgotten": 9}


def test_a_refusal_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    assert forget(cluster, "2") == 1 and cluster.forgotten == []
    assert "broker 2 is up; stop it first" in capsys.readouterr().err
