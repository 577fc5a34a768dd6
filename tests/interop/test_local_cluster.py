"""Three brokers of this machine as one cluster: LocalCluster, and the demo that asks for one of them to be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from broker_process import has_ended, wait_until
from cairnmq.client.admin import Created, NewTopic
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.local_broker import LocalCluster
from interop.shell import SECONDS, Shell

REPLICAS = 3


def produce(client: Client, *values: bytes) -> None:
    producer = client.init_producer_id()
    for number, value in enumerate(values):
        batch = build_batch(
            [Record(0, 0, None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=number,
        )
        client.produce("kept", 0, batch)


def leader(cluster: LocalCluster) -> int:
    with Client.connect(cluster.bootstrap, timeout=5, patience=SECONDS, wait=True) as client:
        return client.topic("kept").partition(0).leader


def test_what_was_acknowledged_survives_its_leader() -> None:
    with LocalCluster(REPLICAS) as cluster:
        with Client.connect(cluster.bootstrap, timeout=5, patience=SECONDS) as client:
            made = client.create_topics([NewTopic("kept", 1, REPLICAS, {"min.insync.replicas": "2"})])
            assert isinstance(made["kept"], Created), made
            produce(client, b"a", b"b")
            first = client.topic("kept").partition(0).leader
            port, before = cluster.brokers[first].port, cluster.pid(first)
            cluster.kill(first)
            assert not cluster.brokers[first].running
            produce(client, b"c")
            assert client.list_offsets("kept", [0], -1)[0].offset == 3
        wait_until(lambda: leader(cluster) != first, SECONDS, "another leader")
        cluster.restart(first)
        assert cluster.brokers[first].port == port and cluster.pid(first) != before
        directory = cluster.directory
        pids = [psutil.Process(cluster.pid(number)) for number in cluster.brokers]
        cluster.pause(first)
        wait_until(lambda: pids[first - 1].status() == psutil.STATUS_STOPPED, SECONDS, "a stopped process")
    assert all(map(has_ended, pids)) and not directory.exists(), "a paused one ends too"


def test_data_of_a_cluster_may_stay(tmp_path: Path) -> None:
    for turn in range(2):
        with LocalCluster(REPLICAS, data=tmp_path) as cluster, Client.connect(cluster.bootstrap) as client:
            if turn == 0:
                client.create_topics([NewTopic("kept", 1, REPLICAS)])
                produce(client, b"a")
            else:
                wait_until(lambda: leader(cluster) > 0, SECONDS, "a leader")
                assert client.list_offsets("kept", [0], -1)[0].offset == 1


class Demo:
    """A demo of three that runs."""

    def __init__(self) -> None:
        self.process = Shell("").start("demo", "--brokers", str(REPLICAS))
        self.below = [psutil.Process(int(self.line(r"^broker \d +pid (\d+)")[1])) for _ in range(REPLICAS)]
        line = self.below[0].cmdline()
        self.directory = Path(line[line.index("--data") + 1]).parent

    def line(self, pattern: str) -> re.Match[str]:
        """Of the next line that is like this; the others are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(pattern, line.decode()):
                return found
        raise AssertionError(f"the demo ended before it said {pattern!r}")


@pytest.fixture
def demo() -> Iterator[Demo]:
    demo = Demo()
    yield demo
    demo.process.kill()
    demo.process.communicate()


def test_it_tells_what_a_kill_does_and_leaves_nothing_behind(demo: Demo) -> None:
    victim, pid = map(int, demo.line(r"now kill one, for example broker (\d): +kill -9 (\d+)").groups())
    os.kill(pid, signal.SIGKILL)
    assert demo.line(rf"broker {victim} is gone; it led (.*?)\.")[1].startswith("partition")
    over = demo.line(r"partitions? [\d, ]+ (stood still for [\d.]+ s|did not stand still).* Led now: (.*)")
    assert f"by broker {victim}" not in over[2]
    demo.line(rf"broker {victim} is dead .* written")
    demo.process.send_signal(signal.SIGTERM)
    try:
        said, errors = demo.process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise AssertionError("the demo does not end") from None
    assert demo.process.returncode == 0 and b"LOST" not in said
    assert b"none of them lost or read twice" in errors and b"Traceback" not in errors, errors
    wait_until(lambda: all(map(has_ended, demo.below)), SECONDS, "the end of its brokers")
    assert not demo.directory.exists()


@pytest.mark.long
def test_a_broker_that_died_comes_back_by_itself(demo: Demo) -> None:
    """It takes half a minute."""
    victim, pid = map(int, demo.line(r"now kill one, for example broker (\d): +kill -9 (\d+)").groups())
    os.kill(pid, signal.SIGKILL)
    back = int(demo.line(rf"broker {victim} is back \(pid (\d+)\)")[1])
    demo.below.append(psutil.Process(back))
    demo.line(r"all partitions have 3 replicas in sync again")
