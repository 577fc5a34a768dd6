"""Fixtures of ZooKeeper's servers."""

from zookeeper.fixtures import harness, second, servers

__all__ = ["harness", "second", "servers"]
