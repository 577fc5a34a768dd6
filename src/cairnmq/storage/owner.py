"""Whose journals these are: a directory of journals names the cluster that writes them.

A broker that starts beside the wrong --journal-dir would take the journals of another one for its own torn tail and
cut them. So the name is written at the first start and compared at every other.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.disk import Disk
from cairnmq.storage.format import CHECKPOINT_SUFFIX, CHECKPOINTS, JOURNAL_SUFFIX, numbered
from cairnmq.storage.loss import Lost

OWNER_FILE = "owner.json"


class Owner(Struct, frozen=True):
    """Content of `owner.json`."""

    cluster_id: str


def claim_journals(
    journal_disk: Disk, read_disk: Disk, cluster_id: str, *, where: str, has_topics: bool, accept_loss: bool
) -> None:
    """Raises, and changes nothing, if these journals are not this cluster's or its own are missing."""
    found = _read(journal_disk)
    if found is not None and found.cluster_id == cluster_id:
        return
    if found is not None and not accept_loss:
        raise Corrupt(
            f"the journals in {where} belong to the cluster {found.cluster_id}, this data directory to {cluster_id}. "
            f"Give the --journal-dir (or --data) that belongs to it; nothing was changed."
        )
    journals = [name for name in journal_disk.list("") if name.isdigit()]
    is_empty = not any(numbered(journal_disk.list(name), JOURNAL_SUFFIX) for name in journals)
    has_checkpoint = bool(numbered(read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX))
    if found is None and is_empty and has_topics and not has_checkpoint and not accept_loss:
        raise Lost(
            f"{where} holds no journals, but this data directory has topics and was never checkpointed: all their "
            f"records are in journals elsewhere. Is a disk not mounted, or --journal-dir another one? Nothing was "
            f"changed; `cairn serve --accept-loss` goes on without the records."
        )
    if is_empty and has_checkpoint and not accept_loss:
        return  # recovery says what is lost
    journal_disk.make_dir("")
    journal_disk.replace(OWNER_FILE, msgspec.json.encode(Owner(cluster_id)))


def _read(disk: Disk) -> Owner | None:
    if not disk.exists(OWNER_FILE):
        return None
    file = disk.open(OWNER_FILE)
    try:
        return msgspec.json.decode(file.read(0, file.size()), type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # damaged; what the journals say decides
    finally:
        file.close()
