"""Fixtures of the client suite: one broker for all, clients by name, topics that no other test uses."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from broker_process import CAIRN, Broker, fixed_port
from interop.clients.contract import Client
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.roster import CLIENTS, PROGRAMS
from interop.recorder import Recorder
from interop.shell import SECONDS, Shell
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


@pytest.fixture(scope="session")
def replicas() -> int:
    """That a topic has unless somebody asks for another number."""
    return 1


@pytest.fixture
def relayed(make_broker: Callable[..., Broker]) -> Iterator[tuple[Broker, Recorder]]:
    """A broker, and what its clients send it."""
    port = fixed_port()
    recorder = Recorder(port)
    broker = make_broker(port=port, flags=["--advertise", f"127.0.0.1:{recorder.port}"])
    broker.start()
    assert broker.bootstrap == f"127.0.0.1:{recorder.port}"
    yield broker, recorder
    recorder.close()


@pytest.fixture
def cairn(shared_broker: Broker) -> Shell:
    return Shell(shared_broker.bootstrap)


@pytest.fixture
def topic(cairn: Shell, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "cli-" + re.sub("[^a-z0-9_]+", "-", request.node.name.removeprefix("test_")).strip("-")
    cairn("topic", "create", name, "-p", "3")
    yield name
    subprocess.run([CAIRN, "topic", "delete", name], capture_output=True, env=cairn.environment, timeout=SECONDS)
