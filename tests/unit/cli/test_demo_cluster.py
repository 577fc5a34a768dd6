"""The loop of the cluster demo: it prints, restarts what has been dead for long, and sums up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from cairnmq.cli import demo_cluster
from cairnmq.cli.demo_cluster import Returns, _sum_up, _watch
from cairnmq.cli.demo_story import RESTART_SECONDS, Sample, Story
from cairnmq.errors import Fault
from cairnmq.local_broker import LocalCluster
from unit.cli.test_demo_story import PIDS, sample, without


class Restarts(LocalCluster):
    """A cluster without processes: restarts are noted, and fail if the test says so."""

    def __init__(self, fails: bool = False) -> None:
        self.restarted: list[int] = []
        self.may_go = threading.Event()
        self._fails = fails

    def restart(self, number: int) -> None:
        self.may_go.wait(30)
        self.restarted.append(number)
        if self._fails:
            raise Fault("its log says why")


def played(*samples: Sample) -> Callable[[], Sample]:
    left: Iterator[Sample] = iter(samples)
    return lambda: next(left)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_cluster, "LOOK_SECONDS", 0.0)


def test_lines_sentences_and_the_restart(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Restarts()
    returns = Returns(cluster)
    dead = RESTART_SECONDS + 1.5
    watched = [sample(0), sample(0.5), sample(1.5, pids=without(2)), sample(dead, pids=without(2)), sample(99)]
    _watch(Story(PIDS, 3), played(*watched), returns, 98.0)
    assert returns.busy(2) and not returns.busy(1)
    cluster.may_go.set()
    returns._threads[2].join()
    assert cluster.restarted == [2] and returns.failures() == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("now kill one") and lines[1].startswith("broker 2 is gone; it led partition 1")
    assert lines[2].startswith("broker 1 leads 0 | broker 2 is dead | broker 3 leads 2 | written ")


def test_enter_restarts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Restarts()
    cluster.may_go.set()
    returns = Returns(cluster)
    monkeypatch.setattr(demo_cluster, "_pressed", lambda seconds: True)
    _watch(Story(PIDS, 3), played(sample(0), sample(1), sample(2, pids=without(3)), sample(9)), returns, 8.0)
    returns._threads[3].join()
    assert cluster.restarted == [3]


def test_a_broker_that_does_not_start_again_says_why() -> None:
    cluster = Restarts(fails=True)
    cluster.may_go.set()
    returns = Returns(cluster)
    returns.start(1)
    returns._threads[1].join()
    assert returns.failures() == ["broker 1: its log says why"] and returns.failures() == []


def test_the_sum() -> None:
    assert _sum_up(sample(0, acked=1200, read=1199)).endswith(
        "1,199 read, 1 not read yet; none of them lost or read twice."
    )
    assert _sum_up(sample(0, acked=5, read=5)).endswith("5 read; none of them lost or read twice.")
    assert "1 LOST OR READ TWICE" in _sum_up(sample(0, wrong=1))
