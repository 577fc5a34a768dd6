"""What `--metadata` names: nothing that is shared, a file of this machine, or ZooKeeper. Loads no store."""

from __future__ import annotations

import os

from msgspec import Struct

from cairnmq.metadata.zookeeper_address import ZookeeperAddress, is_zookeeper, parse_zookeeper

FORMS = "sqlite:PATH or zookeeper://HOST:PORT,HOST:PORT,HOST:PORT/PATH"
_SQLITE = "sqlite"


class SharedPlace(Struct, frozen=True):
    """Where it is: `path` of a file, or `zookeeper`."""

    path: str | None = None
    zookeeper: ZookeeperAddress | None = None

    def __str__(self) -> str:
        return str(self.zookeeper) if self.zookeeper is not None else f"{_SQLITE}:{self.path}"

    def is_missing(self) -> bool:
        """Whether there is certainly nothing. Of ZooKeeper only ZooKeeper knows."""
        return self.path is not None and not os.path.exists(self.path)


def shared_place(metadata: str) -> SharedPlace | None:
    """None: a broker that is alone. ValueError with a sentence about what is wrong."""
    if is_zookeeper(metadata):
        return SharedPlace(zookeeper=parse_zookeeper(metadata))
    kind, colon, path = metadata.partition(":")
    if kind != _SQLITE:
        raise ValueError(f"metadata store {metadata} is unknown; there are {_SQLITE}, {FORMS}")
    if not colon:
        return None
    if path in ("", ":memory:") or path.startswith("//"):
        raise ValueError(f"--metadata {metadata} names no file; write {_SQLITE}:PATH, the same on each broker")
    return SharedPlace(path=path)
