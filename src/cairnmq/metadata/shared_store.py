"""The store that brokers share, opened: a file of this machine, or ZooKeeper."""

from __future__ import annotations

from cairnmq.errors import Fault
from cairnmq.metadata.shared_place import SharedPlace
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import MetadataStore


def open_shared(place: SharedPlace) -> MetadataStore:
    """Made if it is not there. Unreachable: perhaps later; another Fault: not as it is."""
    if place.zookeeper is None:
        assert place.path is not None
        return SqliteStore(place.path, shared=True)
    try:
        from cairnmq.metadata.zookeeper import ZookeeperStore
    except ModuleNotFoundError as error:
        raise Fault(
            f"metadata in ZooKeeper need the package {error.name}, which is not installed: pip install "
            "'.[cluster]' in a clone of CairnMQ"
        ) from error
    return ZookeeperStore(place.zookeeper)
