"""A broker is stopped (SIGSTOP) while it writes the metadata, for longer than a session: nobody else can write them.

The others must say so, lead on, and take nobody for dead: time in which the store cannot be written ends no session.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import wait_until
from cluster.brokers import Cluster
from cluster.metadata_lock import stopped_inside, writers
from cluster.world import GOES_ON_SECONDS, MANNERS, World

SESSION_MS = 6_000  # long, so that no stall of the machine ends one
AWAY, BACK = "the store is away", "the store responds again"
ENDED = ("the session of this broker has ended", "it is taken for dead")


@pytest.mark.long
def test_the_others_wait(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(settings={"cairn.session.ms": str(SESSION_MS)})
    metadata = Path(cluster.metadata.partition(":")[2])
    stopped, *others = cluster.brokers.values()
    world = World(cluster, Counter(), MANNERS)
    with world.lived_in():
        (weak,) = (writer for writer in world.writers if writer.manner.name == "rdk-acks-1")
        with stopped_inside(stopped.pid, metadata):
            for broker in others:
                wait_until(lambda broker=broker: AWAY in broker.log(), GOES_ON_SECONDS, "a store that is away")  # type: ignore[misc]
            answered = weak.acked
            wait_until(lambda: weak.acked > answered + 100, GOES_ON_SECONDS, "answers of leaders that lead on")
            wait_until_away(cluster, [*cluster.brokers][1:])
            assert all(broker.running for broker in others)
            assert not any(BACK in broker.log() for broker in others)
        for broker in others:
            wait_until(lambda broker=broker: BACK in broker.log(), GOES_ON_SECONDS, "a store that is back")  # type: ignore[misc]
        world.goes_on()
        cluster.wait_in_sync()
        for broker in cluster.brokers.values():
            assert not [line for line in broker.log().splitlines() if any(text in line for text in ENDED)]
    cluster.stop()
    cluster.verify()


def wait_until_away(cluster: Cluster, nodes: list[int]) -> None:
    """For longer than a session lasts that nobody can renew."""
    wait_until(
        lambda: all(cluster.report(node).metadata_away_ms > SESSION_MS * 3 // 2 for node in nodes),
        GOES_ON_SECONDS,
        "a store that is away for longer than a session",
    )


def test_who_is_inside_a_transaction(tmp_path: Path) -> None:
    """The kernel's list of locks is read right, else the test above would stop a broker at any time."""
    path = tmp_path / "cluster.db"
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA journal_mode = WAL')\n"
        "for word in sys.stdin: db.execute(word); print(word, end='', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None

        def ask(word: str) -> None:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(f"{word}\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"{word}\n"

        ask("CREATE TABLE a (b)")
        assert writers(path) == set()
        ask("BEGIN")
        ask("SELECT * FROM a")
        assert writers(path) == set(), "who reads is no writer"
        ask("COMMIT")
        ask("BEGIN IMMEDIATE")
        assert writers(path) == {child.pid}
        with stopped_inside(child.pid, path):
            with sqlite3.connect(path, timeout=0.01) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO a VALUES (1)")
            # Closing a file would take this process's locks away, of which it has none.
            other.close()
        ask("ROLLBACK")
        assert writers(path) == set()
        child.stdin.close()
