"""The ZooKeeper store passes the suite of all stores, on one real server and on three."""

from __future__ import annotations

from unit.metadata.conformance import StoreConformance


class TestZookeeper(StoreConformance):
    """The suite, with a second process beside."""
