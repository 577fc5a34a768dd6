"""A standalone cluster: master and worker are processes of their own, and the job runs in executors of the worker. The
driver cannot find formats by itself there, so that it must be told of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from broker_process import Broker, fixed_port, wait_until
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program
from spark.session_process import Connector, start_session

SPARK_HOME = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
HOST = "127.0.0.1"
DAEMONS = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
START_SECONDS = 180


def launch(place: Path, *arguments: str) -> subprocess.Popen[bytes]:
    name = arguments[0].rpartition(".")[2].lower()
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments, "--host", HOST, "--webui-port", "0"],
            stdout=log,
            stderr=log,
            cwd=place,
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST, **DAEMONS},
        )


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    require_program("java")
    port = fixed_port()
    work = ["--work-dir", str(tmp_path / "work"), "--cores", "2", "--memory", "1g"]
    running = [
        launch(tmp_path, f"{CLASSES}.master.Master", "--port", str(port)),
        launch(tmp_path, f"{CLASSES}.worker.Worker", f"spark://{HOST}:{port}", *work),  # asks until the master is up
    ]
    try:
        wait_until(lambda: listens(port), START_SECONDS, "Spark's master")
        yield f"spark://{HOST}:{port}"
    finally:
        for process in reversed(running):
            process.terminate()  # a worker ends its executors
            process.wait(30)


def test_source_aggregation_sink(cluster: str, shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    kafka.create_topic("cluster-from", partitions=2)
    kafka.create_topic("cluster-to", partitions=2)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "pyspark_broken.py").write_text("raise ImportError")  # one such package hides all formats from Spark
    settings = ("spark.executor.memory=512m",)
    session = start_session(tmp_path / "driver", cluster, sys.executable, settings, packages)
    at = Connector(session, shared_broker.bootstrap, "cairnmq").at
    try:
        with pytest.raises(AssertionError, match="DATA_SOURCE_NOT_FOUND"):
            session.ask("collect", source=at(subscribe="cluster-from"), sql="SELECT 1 FROM source")
        session.ask("register")
        for run in (1, 2):
            kafka.produce("cluster-from", [Sent(b"%d" % (i % 3), partition=i % 2) for i in range(60)])
            session.ask(
                "stream",
                source=at(subscribe="cluster-from", startingOffsets="earliest"),
                sql="SELECT CAST(value AS string) AS key, CAST(count(*) AS string) AS value FROM source GROUP BY value",
                sink=at(topic="cluster-to"),
                checkpoint=str(tmp_path / "checkpoint"),
                mode="complete",
            )
            newest = {row.key: int(row.value or b"") for row in kafka.read("cluster-to", (0, 1))}
            assert newest == dict.fromkeys((b"0", b"1", b"2"), 20 * run)
        executors = [path for path in (tmp_path / "work").glob("app-*/*") if (path / "stderr").exists()]
        assert executors, "no executor ran in the worker"
    finally:
        session.kill()
