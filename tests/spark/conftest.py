"""One Spark session for all: it takes longer to start than most tests to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

from broker_process import Broker
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A task that fails is tried again (`local[2]` alone would not); nothing is written into the tree."""
    require_program("java")
    place = tmp_path_factory.mktemp("spark")
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))  # workers find stop_point.py
        session = session_builder(place).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def session_builder(place: Path, master: str = "local[2,3]") -> SparkSession.Builder:
    java = f"-Dderby.system.home={place} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder: SparkSession.Builder = SparkSession.builder.master(master).appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java,
        # Of a server of Spark Connect, if a test starts one.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }.items():
        builder = builder.config(name, value)
    return builder


class KeepingClient(LibrdkafkaClient):
    """Records with times of long ago stay in its topics."""

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        super().create_topic(topic, partitions, {"retention.ms": "-1", **(configs or {})})


@pytest.fixture
def kafka(shared_broker: Broker) -> Iterator[LibrdkafkaClient]:
    """An ordinary client beside Spark: it writes what Spark reads, and reads what Spark must have read."""
    client = KeepingClient(shared_broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def read(spark: SparkSession, shared_broker: Broker) -> Callable[..., DataFrameReader]:
    def make(**options: object) -> DataFrameReader:
        reader = spark.read.format("cairnmq").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        return reader.options(**{name: str(value) for name, value in options.items()})

    return make


@pytest.fixture
def read_stream(spark: SparkSession, shared_broker: Broker) -> Callable[..., DataStreamReader]:
    def make(**options: object) -> DataStreamReader:
        reader = spark.readStream.format("cairnmq").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        return reader.options(**{name: str(value) for name, value in options.items()})

    return make
