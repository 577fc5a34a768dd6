"""The way from one node to a cluster: metadata of a node move once into an empty store that brokers share."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata import cluster_image
from cairnmq.metadata.catalog import CLUSTER_ID, PREFIXES, Catalog
from cairnmq.metadata.cluster_records import NEXT_JOURNAL, put_journal
from cairnmq.metadata.store import ABSENT, Away, Conflict, InDoubt, Made, MetadataStore, Op, Put
from cairnmq.metadata.topics import SLOTS
from cairnmq.replication.records import JournalRecord, Member


def move_metadata(source: MetadataStore, target: MetadataStore, node_id: int, journals: Collection[int]) -> bool:
    """False: they are there already, because an earlier start was stopped before it could put the source aside.

    The cluster keeps its id, and no number that was handed out is handed out again. `journals`: those that the node
    has, besides those of its topics; it stays their only replica, and leads them after its first start in the cluster.
    Unreachable: perhaps later; it may be called again. Another Fault says why nothing was moved."""
    catalog = Catalog(source, node_id=node_id)
    catalog.load()
    catalog.close()
    found = target.get(CLUSTER_ID)
    if found is not None and found.value.decode() == catalog.cluster_id:
        return False
    if found is not None or _keys(target):
        whose = f"cluster {found.value.decode()}" if found is not None else "a cluster that has no id yet"
        raise Fault(
            f"this data directory has metadata of its own, of cluster {catalog.cluster_id}, and the shared metadata "
            f"are those of {whose}: only an empty store takes them over"
        )
    if not catalog.cluster_id:
        raise Fault("the metadata of this data directory name no cluster: start it once by itself")
    numbers = {*journals}
    for topic in catalog.image.topics.values():
        if not all(each.cycle for each in topic.partitions):
            raise Fault(f"topic {topic.name} is of an earlier version: start this node once by itself, to upgrade it")
        numbers.update(journal for each in topic.partitions for journal in each.cycle)
    numbers.update(catalog.image.slots.cycle if catalog.image.slots is not None else ())
    # First what does no harm alone: a store with nothing but high numbers is still empty.
    epoch = target.next_epoch(source.epoch)
    raised = target.raise_revision(source.revision)
    for answer in (epoch, raised):
        if isinstance(answer, Away):
            raise Unreachable(answer.reason)
    assert not isinstance(epoch, Away)
    _write(target, [*_copied(source), *_records(sorted(numbers), node_id, epoch)])
    return True


def _copied(source: MetadataStore) -> Iterator[Op]:
    entries = [entry for prefix in PREFIXES for entry in source.list(prefix)]
    slots = source.get(SLOTS)
    for entry in [*entries, *([slots] if slots is not None else [])]:
        yield Put(entry.key, entry.value, ABSENT)


def _records(journals: list[int], node_id: int, epoch: int) -> Iterator[Op]:
    """Without a leader: the node's first life in the cluster tells how far it reaches, and is elected by that."""
    for journal in journals:
        yield put_journal(JournalRecord(journal, (node_id,), None, epoch, (Member(node_id, 0),)), ABSENT)
    yield Put(NEXT_JOURNAL, msgspec.json.encode(max(journals, default=0) + 1), ABSENT)


def _keys(store: MetadataStore) -> bool:
    prefixes = [*PREFIXES, *cluster_image.PREFIXES]
    return any(store.list(prefix) for prefix in prefixes) or any(map(store.get, [SLOTS, *cluster_image.KEYS]))


def _write(target: MetadataStore, ops: list[Op]) -> None:
    answer: int | Conflict | Away | InDoubt | Made = target.transact(ops)
    if isinstance(answer, InDoubt):
        answer = target.resolve(answer)
    if isinstance(answer, Conflict):
        raise Fault("another broker was faster: the shared metadata are no longer empty")
    if isinstance(answer, Away | InDoubt):
        raise Unreachable(answer.reason)
