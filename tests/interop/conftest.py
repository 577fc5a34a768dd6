"""Fixtures of the client suite: one broker for all, clients by name, topics that no other test uses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from broker_process import Broker
from interop.clients.contract import Client
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.roster import CLIENTS, PROGRAMS
from programs import require_program

counter = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Our broker; or, to test the cases themselves, any broker that CAIRN_INTEROP_BOOTSTRAP names."""
    other = os.environ.get("CAIRN_INTEROP_BOOTSTRAP")
    if other:
        return other
    broker: Broker = request.getfixturevalue("shared_broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[Callable[[str], Client]]:
    """Clients by name, made when first asked for."""
    made: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name in PROGRAMS:
            require_program(PROGRAMS[name])
        if name not in made:
            made[name] = CLIENTS[name](bootstrap)
        return made[name]

    yield get
    for client in made.values():
        client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    return clients(request.param)


@pytest.fixture
def writer(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    return clients(request.param)


@pytest.fixture
def reader(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    return clients(request.param)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> LibrdkafkaClient:
    """Prepares what a case needs but is not about."""
    return LibrdkafkaClient(bootstrap)


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, admin: LibrdkafkaClient) -> Callable[..., str]:
    """Makes a topic of its own for the test: new_topic(partitions=3, **{"retention.ms": "1000"})."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = unused_name(request.node.name)
        admin.create_topic(name, partitions, configs)
        return name

    return make


@pytest.fixture
def free_name(request: pytest.FixtureRequest) -> str:
    """A topic name that nobody has used."""
    return unused_name(request.node.name)


def unused_name(test: str) -> str:
    plain = "".join(letter if letter.isalnum() else "-" for letter in test)
    return f"{plain.strip('-')}-{os.getpid()}-{next(counter)}"
