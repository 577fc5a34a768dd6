"""One Apache Kafka for all: started, filled, read by a client and stopped; its directory is what the tests import."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from apache_kafka.node import ApacheKafka
from apache_kafka.source import Source, fill
from broker_process import Broker
from conftest import QUICK_GROUPS, close_all


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache-kafka"))
    try:
        kafka.start()
        filled = fill(kafka.bootstrap, kafka.logs)
        # What a kill -9 at this moment would leave, without indexes of 10 MiB each that hold nothing yet.
        # Checkpoints are renamed from *.tmp all the time.
        ignored = shutil.ignore_patterns("*index", "compacted-*", "*.tmp")
        shutil.copytree(kafka.logs, filled.killed, ignore=ignored)
        kafka.stop()
        yield filled
    finally:
        kafka.close()


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Broker]]:
    """Makes and starts brokers that end with the module."""
    made: list[Broker] = []

    def make() -> Broker:
        made.append(Broker(tmp_path_factory.mktemp("imported"), settings=QUICK_GROUPS))
        return made[-1].start()

    yield make
    close_all(made)
