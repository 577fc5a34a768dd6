"""Spark Connect: what a client without Java asks of a server reads and writes topics as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_process import Broker
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.process import ClientProcess
from spark.records import mixed
from spark.session_process import NOTEBOOK, Connector, start_session

SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """Its address. It runs in the Java of the session that all tests share, which is there anyway."""
    java: Any = spark.sparkContext._jvm
    service = getattr(getattr(java, SERVICE), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(java.scala.Option.empty(), java.scala.Option.empty())


@pytest.fixture
def session(server: str, tmp_path: Path) -> Iterator[ClientProcess]:
    process = start_session(tmp_path / "client", server, NOTEBOOK)
    yield process
    process.kill()


def test_both_ways_in_batches_and_streams(
    session: ClientProcess, shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    connect = Connector(session, shared_broker.bootstrap, "cairnmq")
    kafka.create_topic("connect-from", partitions=2)
    kafka.produce("connect-from", mixed(60, 2))
    written = sorted(kafka.read("connect-from", (0, 1)))
    assert connect.records(subscribe="connect-from") == written
    source = {"subscribe": "connect-from", "startingOffsets": "earliest", "includeHeaders": "true"}
    for way, more in ("copy", {}), ("stream", {"checkpoint": str(tmp_path / "checkpoint")}):
        kafka.create_topic(f"connect-{way}", partitions=2)
        sink = connect.at(topic=f"connect-{way}")
        session.ask(way, source=connect.at(**source), sql="SELECT * FROM source", sink=sink, **more)
        assert sorted(kafka.read(f"connect-{way}", (0, 1))) == written
    with pytest.raises(AssertionError, match="unknown option startingofsets; did you mean startingOffsets"):
        connect.records(subscribe="connect-from", startingOfsets="earliest")
