"""Fixtures of ZooKeeper's servers; files of other stores have their own `harness`."""

from zookeeper.fixtures import harness, second, servers

__all__ = ["harness", "second", "servers"]
