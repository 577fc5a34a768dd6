"""The tests of tests/interop again, with three brokers and factor 3 in place of one broker.

A case has one client here, chosen by its name, so that all clients take part and it takes minutes; CLUSTER_CLIENTS=all
or CLUSTER_CLIENTS=java,kcat asks for others.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

# Made anew here: a fixture of the session that two suites share would be one broker for both.
from conftest import make_broker, shared_broker  # noqa: F401
from features import ROLES
from interop.clients.roster import CLIENTS
from interop.conftest import *
from interop_cluster.one_node import ONE_NODE
from interop_cluster.three import REPLICAS, ThreeBrokers

HERE = Path(__file__).parent
WANTED = os.environ.get("CLUSTER_CLIENTS", "")


@pytest.fixture(scope="session")
def broker_kind() -> type[ThreeBrokers]:
    return ThreeBrokers


@pytest.fixture(scope="session")
def replicas() -> int:
    return REPLICAS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out other clients, and skips what is about one node."""
    ours = [item for item in items if item.path.parent == HERE]
    cases = {item.nodeid: case_of(item) for item in ours}
    able: dict[str, dict[str, set[str]]] = {}
    for case, clients in cases.values():
        for role, client in clients.items():
            able.setdefault(case, {}).setdefault(role, set()).add(client)
    left_out = [item for item in ours if not is_wanted(*cases[item.nodeid], able)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    for item in ours:
        name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        if name in ONE_NODE:
            item.add_marker(pytest.mark.skip(reason=ONE_NODE[name]))


def case_of(item: pytest.Item) -> tuple[str, Mapping[str, str]]:
    """Test and variant, and the client in each role."""
    called = getattr(item, "callspec", None)
    parameters = dict(called.params) if called is not None else {}
    clients = {role: parameters.pop(role) for role in ROLES if role in parameters}
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}{sorted(parameters.items())}", clients


def is_wanted(case: str, clients: Mapping[str, str], able: Mapping[str, Mapping[str, set[str]]]) -> bool:
    if not clients or WANTED == "all":
        return True
    if WANTED:
        return set(clients.values()) <= set(WANTED.split(","))
    return all(client == chosen(f"{role} of {case}", able[case][role]) for role, client in clients.items())


def chosen(case: str, able: set[str]) -> str:
    return [name for name in CLIENTS if name in able][zlib.crc32(case.encode()) % len(able)]
