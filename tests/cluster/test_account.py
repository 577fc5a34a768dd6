"""A failure in a cluster is explained by what its brokers know at that moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.account import account, accounted
from cluster.brokers import Cluster


def test_a_failure_says_what_brokers_know(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    made = cluster.cairn("topic", "create", "orders", "-p", "3", "-b", cluster.bootstrap)
    assert made.returncode == 0, made.stderr
    cluster.wait_in_sync()
    with pytest.raises(AssertionError, match="nothing came") as failed, accounted(cluster):
        raise AssertionError("nothing came")
    (note,) = failed.value.__notes__
    assert "brokers that run: [1, 2, 3]\nhealthy" in note
    assert note.count("leads journal ") >= 3 and note.count("ready: True") == note.count("leads journal ")
    assert "ends of orders: {" in note and "NOT_LEADER_OR_FOLLOWER" in note, "each tells of those that it leads"
    cluster.kill(2)
    for node in (1, 3):
        assert cluster.brokers[node].stop() == 0
    note = account(cluster)
    assert "brokers that run: []" in note and "cannot reach" in note and note.count("broker stopped") == 2
