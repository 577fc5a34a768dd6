"""Starts of brokers that are, or become, brokers of a cluster: real processes on real directories."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import CAIRN, START_SECONDS, Broker, fixed_port, wait_until
from cluster.metadata_lock import stop_outside
from conftest import LIVE, QUICK_GROUPS

COMMAND_SECONDS = 120
SETTINGS = {
    "cairn.session.ms": "2000",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    **QUICK_GROUPS,
}

Make = Callable[..., Broker]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A broker that was not started yet, of the cluster in `cluster.db`; `alone`: with metadata of its own. They end
    with the test, without a traceback."""
    made: list[Broker] = []

    def one(node: int, *flags: str, name: str = "", alone: bool = False, **settings: str) -> Broker:
        cluster = [] if alone else ["--metadata", f"sqlite:{tmp_path / 'cluster.db'}"]
        named = {key.replace("_", "."): value for key, value in settings.items()}
        broker = Broker(
            tmp_path / (name or f"node{node}"),
            port=fixed_port(),
            settings=SETTINGS | named,
            flags=["--node-id", str(node), *cluster, *flags],
            http=False,
        )
        made.append(broker)
        LIVE.append(broker)
        return broker

    yield one
    for broker in made:
        LIVE.remove(broker)
    for broker in made:
        broker.close()


def cairn(broker: Broker, *words: str, said: str = "") -> str:
    """What a command prints; it succeeds."""
    done = subprocess.run(
        [CAIRN, *words, "-b", f"127.0.0.1:{broker.port}"],
        input=said,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"cairn {' '.join(words)}: {done.stdout}{done.stderr}\n{broker.log_tail()}"
    return done.stdout


def ends(broker: Broker) -> tuple[int, str]:
    """A process that ends by itself: its exit code, and what it said since it was started."""
    code = broker.wait_dead(START_SECONDS)
    return code, broker.log().rpartition("--- start ")[2]


def refused(broker: Broker) -> str:
    """A start that is refused: why, in one line on stderr."""
    broker.launch()
    code, said = ends(broker)
    assert code == 1, said
    why = [line for line in said.splitlines() if line.startswith("cairn serve: ")]
    assert len(why) == 1, said
    return why[0].removeprefix("cairn serve: ")


def files(directory: Path) -> dict[str, bytes]:
    """All but the locks, which name the last process."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_from_one_node_to_a_cluster(make: Make) -> None:
    """Topics, records and committed offsets are there afterwards; others join."""
    alone = make(1, name="node1", alone=True).start()
    cairn(alone, "topic", "create", "orders", "-p", "2")
    cairn(alone, "produce", "orders", "-p", "1", said="a\nb\nc\n")
    assert cairn(alone, "consume", "orders", "-g", "readers", "-o", "start", "-n", "2") == "a\nb\n"
    cluster_id = json.loads(cairn(alone, "cluster", "info", "--json"))["cluster_id"]
    assert alone.stop() == 0
    one = make(1, name="node1").start()
    assert "the metadata of this broker moved" in one.log()
    assert json.loads(cairn(one, "cluster", "info", "--json"))["cluster_id"] == cluster_id
    assert cairn(one, "consume", "orders", "-o", "start", "-e") == "a\nb\nc\n"
    assert cairn(one, "consume", "orders", "-g", "readers", "-n", "1") == "c\n"
    two = make(2).start()
    cairn(two, "topic", "create", "copies", "-r", "2")
    cairn(two, "produce", "copies", said="d\n")
    assert cairn(one, "consume", "copies", "-o", "start", "-e") == "d\n"
    assert one.stop() == two.stop() == 0
    again = make(1, name="node1").start()
    assert cairn(again, "consume", "orders", "-o", "start", "-e") == "a\nb\nc\n"


def test_a_directory_of_a_cluster_is_not_started_without_its_metadata(make: Make) -> None:
    """Metadata that are elsewhere are not lost: nobody is told to accept that, and nothing is changed."""
    broker = make(1, name="node1").start()
    cairn(broker, "topic", "create", "orders")
    cairn(broker, "produce", "orders", said="a\n")
    assert broker.stop() == 0
    before = files(broker.data)
    for flags in ((), ("--accept-loss",)):
        why = refused(make(1, *flags, name="node1", alone=True))
        assert "whose brokers share their metadata; add --metadata sqlite:PATH" in why and "restore" not in why.lower()
        assert files(broker.data) == before
    accepting = make(1, "--accept-loss", name="node1")
    accepting.launch()
    code, said = ends(accepting)
    assert (code, files(broker.data)) == (2, before) and "--accept-loss is for a broker that is alone" in said
    again = make(1, name="node1").start()
    assert cairn(again, "consume", "orders", "-o", "start", "-e") == "a\n"


def test_directories_of_other_brokers_are_refused(make: Make) -> None:
    """Before anything is written: put back right, all is as it was."""
    names = ("node1", "node2", "node3")
    brokers = [make(node, name=name).start() for node, name in enumerate(names, 1)]
    cairn(brokers[0], "topic", "create", "orders", "-r", "3")
    cairn(brokers[0], "produce", "orders", said="a\n")
    for broker in brokers:
        assert broker.stop() == 0
    before = [files(broker.data) for broker in brokers]
    for node, name in ((7, "node1"), (1, "node2"), (2, "node3"), (3, "node1")):
        owner = names.index(name) + 1
        assert f"is that of broker {owner}: use --node-id {owner}" in refused(make(node, name=name))
    assert [files(broker.data) for broker in brokers] == before
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_ready()
    assert cairn(brokers[0], "consume", "orders", "-o", "start", "-e") == "a\n"
    cairn(brokers[0], "cluster", "health")


def test_a_copy_of_a_directory_takes_the_id_over_once(make: Make) -> None:
    """The broker whose id it is no more ends, and says who has it."""
    first = make(1, name="node1").start()
    cairn(first, "topic", "create", "orders")
    cairn(first, "produce", "orders", said="a\n")
    stop_outside(first.pid, first.directory.parent / "cluster.db")
    shutil.copytree(first.data, first.directory.parent / "copy" / "data")
    os.kill(first.pid, signal.SIGCONT)
    copy = make(1, name="copy").start()
    code, said = ends(first)
    assert code == 1 and f"another process took over broker id 1 at 127.0.0.1:{copy.port}" in said
    assert cairn(copy, "consume", "orders", "-o", "start", "-e") == "a\n"
    cairn(copy, "produce", "orders", said="b\n")
    assert copy.running and "registered again" not in copy.log()
    assert cairn(copy, "consume", "orders", "-o", "start", "-e") == "a\nb\n"


def test_a_paused_broker_whose_id_was_taken_over_ends(make: Make, tmp_path: Path) -> None:
    """The other one waits until its session has ended."""
    other = make(2).start()
    first = make(1, name="node1").start()
    stop_outside(first.pid, tmp_path / "cluster.db")
    new = make(1, name="another").start()
    os.kill(first.pid, signal.SIGCONT)
    code, said = ends(first)
    assert code == 1 and f"another process took over broker id 1 at 127.0.0.1:{new.port}" in said
    assert other.running and new.running


def test_an_id_that_a_live_broker_has(make: Make) -> None:
    """The log says what the start waits for."""
    first = make(1, name="node1").start()
    another = make(1, name="another")
    why = refused(another)
    assert f"broker id 1 is in use by a live broker at 127.0.0.1:{first.port} with another data directory" in why
    assert f"broker id 1 is held by a session of 127.0.0.1:{first.port}" in another.log()
    assert not (another.data / "journal" / "owner.json").exists() and first.running


def test_metadata_that_another_process_is_changing_are_waited_for(make: Make, tmp_path: Path) -> None:
    """As by a broker that was suspended in the middle of a change: until it continues, or for 15 s."""
    first = make(1, name="node1").start()
    assert first.stop() == 0
    with closing(sqlite3.connect(tmp_path / "cluster.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        again = make(1, name="node1")
        again.launch()
        waits = "start: the metadata cannot be used yet: "
        wait_until(lambda: waits in again.log(), START_SECONDS, "a start that waits")
        db.execute("ROLLBACK")
        again.wait_ready()
        assert again.log().count(waits) == 1 and again.stop() == 0
        db.execute("BEGIN IMMEDIATE")
        why = refused(make(1, name="node1"))
        assert "in use by another process; waited 15 s. Another broker of this machine may be suspended" in why
        db.execute("ROLLBACK")
    assert make(1, name="node1").start().stop() == 0


def test_a_secret_that_others_do_not_have(make: Make) -> None:
    first = make(1, cairn_cluster_secret="a secret of 1234").start()
    assert "this broker has no cairn.cluster.secret, and broker 1 has one" in refused(make(2, name="node2"))
    two = make(2, name="node2", cairn_cluster_secret="a secret of 1234").start()
    assert two.stop() == first.stop() == 0
    again = make(1, cairn_cluster_secret="a secret of 5678").start()
    assert again.running, "nobody else lives: the secret may change"
