"""A store copied into a metadata file, as of one revision: what reads files then reads any store."""

from __future__ import annotations

from contextlib import closing

from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata import catalog, cluster_image
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import ABSENT, Away, MetadataStore, Put
from cairnmq.metadata.topics import SLOTS

_ATTEMPTS = 20


def copy_store(source: MetadataStore, path: str) -> None:
    """A new file. Unreachable: others change the store all the time."""
    for _ in range(_ATTEMPTS):
        revision, epoch = source.revision, source.epoch
        puts = entries_of(source)
        if source.revision == revision:
            break
    else:
        raise Unreachable("brokers change the metadata all the time: stop them first")
    with closing(SqliteStore(path)) as copy:
        made = copy.transact(puts)
        answers = (made, copy.raise_revision(revision), copy.next_epoch(epoch - 1) if epoch else None)
        if not isinstance(made, int) or any(isinstance(answer, Away) for answer in answers):
            raise Fault(f"{path}: the copy could not be written: {made}")


def entries_of(source: MetadataStore) -> list[Put]:
    """All that is kept of a cluster, for an empty store."""
    prefixes = [*catalog.PREFIXES, *cluster_image.PREFIXES]
    entries = [entry for prefix in prefixes for entry in source.list(prefix)]
    entries += [entry for entry in map(source.get, [SLOTS, *cluster_image.KEYS]) if entry is not None]
    return [Put(entry.key, entry.value, ABSENT) for entry in entries]
