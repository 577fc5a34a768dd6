"""`cairn cluster elect`: it says what may be lost, asks, and does nothing without a yes."""

from __future__ import annotations

import io
import json

import pytest

from cairnmq.cli.main import main
from cairnmq.wire.messages import ElectLeadersRequest, ElectUncleanRequest
from scripted_cluster import ScriptedCluster


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def leaderless() -> ScriptedCluster:
    cluster = ScriptedCluster()
    cluster.down, cluster.leaders, cluster.isr = {3}, {1: 1, 2: 2, 3: -1}, {3: [3]}
    return cluster


def elect(cluster: ScriptedCluster, *words: str) -> int:
    with cluster.running() as bootstrap:
        return main(["cluster", "elect", *words, "-b", bootstrap])


def test_preferred_leaders(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ScriptedCluster()
    cluster.refusals = {1: (84, "election not needed"), 2: (80, "broker 2 is not in sync")}
    assert elect(cluster) == 1
    said = capsys.readouterr().err
    assert "preferred broker: 1\n" in said and "broker 2 is not in sync" in said and "not needed" not in said
    assert cluster.elected == [ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000)]
    cluster.refusals = {}
    assert elect(cluster, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"elected": ["orders-0", "orders-1", "orders-2"], "refused": {}}


def test_unclean_says_what_may_be_lost_and_does_nothing_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = leaderless()
    assert elect(cluster, "--unclean", "3") == 1
    said = capsys.readouterr().err
    assert "journal 3 would be led by one of: brokers 1, 2." in said
    assert "Records that only broker 3 has are lost, also acknowledged ones" in said
    assert "nothing was changed. `cairn cluster elect --unclean 3 --yes` does it." in said
    assert cluster.elected == []


def test_unclean_names_who_would_lead(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = leaderless()
    cluster.ends, cluster.damaged = {(3, 1): (20, 9000), (3, 2): (20, 0)}, {2: [3]}
    assert elect(cluster, "--unclean", "3") == 1
    said = capsys.readouterr().err
    assert "journal 3 would be led by broker 1, which reaches position 9,000 (epoch 20)." in said
    assert "  broker 2 has lost bytes and reaches position 0 (epoch 20)." in said
    del cluster.ends[3, 2]
    assert elect(cluster, "--unclean", "3") == 1
    assert "  broker 2 has not told how far it reaches." in capsys.readouterr().err
    cluster.down = {2, 3}
    assert elect(cluster, "--unclean", "3") == 1
    assert "Records that only brokers 2, 3 have are lost" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("", 1), ("\n", 1)])
def test_unclean_asks(answer: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = leaderless()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert elect(cluster, "--unclean", "3") == code
    assert cluster.elected == ([ElectUncleanRequest(journals=[3], timeout_ms=30_000)] if code == 0 else [])


def test_unclean_with_yes(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = leaderless()
    assert elect(cluster, "--unclean", "3", "--yes") == 0
    assert capsys.readouterr().err.endswith("journal 3 has a leader\n")
    cluster.refusals = {3: (83, "no replica could be asked")}
    assert elect(cluster, "--unclean", "3", "--yes") == 1
    assert "no replica could be asked" in capsys.readouterr().err
    assert elect(cluster, "--unclean", "3", "--yes", "--json") == 1
    assert "no replica could be asked" in json.loads(capsys.readouterr().out)["3"]


def test_unclean_is_only_for_journals_that_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = leaderless()
    assert elect(cluster, "--unclean", "1", "--unclean", "9", "--yes") == 1
    said = capsys.readouterr().err
    assert "journal 1 has a leader: broker 1" in said and "journal 9 does not exist" in said
    assert cluster.elected == []


def test_waiting_is_advised_where_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = leaderless()
    cluster.isr = {3: [2, 3]}
    assert elect(cluster, "--unclean", "3") == 1
    assert "wait, it will be elected by itself and nothing is lost" in capsys.readouterr().err
