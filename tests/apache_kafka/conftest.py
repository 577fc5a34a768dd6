"""One Apache Kafka for all: started, filled, read by a client and stopped; its directory is what the tests import."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from apache_kafka.node import ApacheKafka
from apache_kafka.source import Source, fill
from broker_process import Broker
from conftest import close_all


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache-kafka"))
    try:
        kafka.start()
        filled = fill(kafka.bootstrap, kafka.logs)
        kafka.stop()
        yield filled
    finally:
        kafka.close()


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Broker]]:
    """Makes and starts brokers that end with the module."""
    made: list[Broker] = []

    def make() -> Broker:
        made.append(Broker(tmp_path_factory.mktemp("imported")))
        return made[-1].start()

    yield make
    close_all(made)
