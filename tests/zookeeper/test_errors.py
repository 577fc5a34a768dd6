"""Starts that cannot be: what a person reads of them, and that nothing was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from broker_process import CAIRN, Broker, fixed_port
from zookeeper.harness import ZookeeperHarness
from zookeeper.servers import Servers

SECONDS = 120


def refused(data: Path, metadata: str, *more: str) -> str:
    line = [CAIRN, "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--no-http", "--metadata", metadata, *more]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_nobody_listens(tmp_path: Path) -> None:
    said = refused(tmp_path / "data", f"zookeeper://127.0.0.1:{fixed_port()}/x")
    assert "does not respond" in said and "refused" in said, said


def test_sessions_that_are_too_long(servers: Servers, tmp_path: Path) -> None:
    said = refused(tmp_path / "data", f"zookeeper://{servers.addresses[0]}/long", "--set", "cairn.session.ms=60000")
    assert "set cairn.session.ms to 10000 or less" in said, said


def test_a_path_of_another_program(servers: Servers, harness: ZookeeperHarness, tmp_path: Path) -> None:
    with harness.asked() as client:
        client.ensure_path("/kafka/brokers/ids")
    assert "nodes of another program (brokers)" in refused(
        tmp_path / "data", f"zookeeper://{servers.addresses[0]}/kafka"
    )


def test_a_directory_of_another_cluster(servers: Servers, tmp_path: Path) -> None:
    flags = ("--metadata", f"zookeeper://{servers.addresses[0]}/one", "--internal", f"127.0.0.1:{fixed_port()}")
    broker = Broker(tmp_path / "node", flags=flags, http=False)
    broker.start()
    assert broker.stop() == 0
    said = refused(broker.data, f"zookeeper://{servers.addresses[0]}/other")
    assert "belongs to the cluster" in said and "is new" in said and "nothing was changed" in said, said
    broker.start()
    assert broker.stop() == 0
