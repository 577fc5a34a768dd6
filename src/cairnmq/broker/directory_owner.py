"""Whose a data directory is, as its files and the shared metadata tell: of one node, or of a broker of a cluster.

A start in the wrong way would take records for those of nobody, or one broker for another. So it is refused before
anything is written. All of this only reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairnmq.broker.start_errors import CannotServe
from cairnmq.metadata.cluster_records import BrokerEntry
from cairnmq.storage.api.start import RealDisk, is_replica, read_owner

METADATA_FILE = "meta.db"
MOVED = ".moved"
"""What the metadata of one node are called when they have moved into a store that brokers share."""


def refuse_start_alone(data: str, journal_disk: RealDisk, data_disk: RealDisk) -> None:
    """Without shared metadata. Nobody can accept a loss here: nothing is lost, the metadata are elsewhere."""
    if data_disk.exists(METADATA_FILE):
        return
    owner = read_owner(journal_disk)
    if is_replica(journal_disk) or data_disk.exists(METADATA_FILE + MOVED):
        whose = f"the cluster {owner.cluster_id}" if owner is not None else "a cluster"
        raise CannotServe(
            f"--data {data} belongs to a broker of {whose}, whose brokers share their metadata; "
            f"add --metadata sqlite:PATH, the file that they use. Nothing was changed."
        )


def refuse_new_store(data: str, store: str, journal_disk: RealDisk, data_disk: RealDisk) -> None:
    """A store that does not exist yet. A node that was alone brings its metadata along; a broker of a cluster has none
    that it could bring."""
    owner = read_owner(journal_disk)
    if owner is not None and not data_disk.exists(METADATA_FILE):
        raise CannotServe(
            f"--data {data} belongs to the cluster {owner.cluster_id}, and --metadata {store} does not exist. "
            f"Name the metadata that the brokers of that cluster share; nothing was changed."
        )


def refuse_other_broker(
    data: str, node_id: int, journal_disk: RealDisk, brokers: Mapping[int, BrokerEntry], *, was_alone: bool
) -> None:
    """The directory of another broker of the cluster. Who was alone may have got another id at any time, and brings it
    along."""
    owner = read_owner(journal_disk)
    if owner is None:
        return
    whose = [broker for broker, entry in sorted(brokers.items()) if owner.directory in _directories(entry)]
    if not whose and not was_alone:
        whose = list(owner.nodes)
    if whose and node_id not in whose:
        raise CannotServe(
            f"--data {data} is that of broker {whose[-1]}: use --node-id {whose[-1]}, or give the directory of broker "
            f"{node_id}; nothing was changed."
        )


def _directories(entry: BrokerEntry) -> set[str]:
    """Of now and of before. Those of early versions have no names."""
    return {entry.directory_id, *(former.directory for former in entry.record.former)} - {""}


def refuse_other_cluster(data: str, store: str, journal_disk: RealDisk, cluster_id: str) -> None:
    """`cluster_id`: of the shared metadata; empty if they are new."""
    owner = read_owner(journal_disk)
    if owner is not None and owner.cluster_id != cluster_id:
        raise CannotServe(
            f"--data {data} belongs to the cluster {owner.cluster_id}, and --metadata {store} is "
            f"{f'that of {cluster_id}' if cluster_id else 'new'}. Give the directory and the metadata that belong "
            f"together; nothing was changed."
        )
