"""`cairn verify A B C`: replicas of one cluster held against each other. Works on any Disk, the simulator's too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from cairnmq.storage.check.finding import Finding, note
from cairnmq.storage.check.journal_comparison import common_end, compare_journals, first_base
from cairnmq.storage.check.queue_comparison import compare_records, compare_rows
from cairnmq.storage.check.replica import Replica, each_journal, names, odd_ones
from cairnmq.storage.recovery.witness import SPACE


def compare(replicas: Sequence[Replica], queues: Collection[int] | None = None) -> Iterator[Finding]:
    """`queues`: those that exist by the metadata; None when they are not at hand."""
    clusters: dict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        if replica.open():
            clusters[replica.cluster_id].append(replica)
        else:
            yield note(replica.root, "is not compared with the others, because it cannot be read")
    for cluster_id, members in clusters.items():
        if len(members) < 2:
            if len(clusters) > 1:
                text = f"belongs to the cluster {cluster_id or 'of nobody'}, as no other of these: it is not compared"
                yield note(members[0].root, text)
            continue
        for number, having in each_journal(members):
            yield from compare_journals(number, having)
        yield from _compare_queues(members, queues)


def extent(replicas: Sequence[Replica]) -> Finding:
    """What was compared, so that nobody takes "no problem found" for more than it is. After `compare`."""
    members: dict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        members[replica.cluster_id].append(replica)
    having = [each for group in members.values() for each in each_journal(group)]
    if not having:
        return note("replicas", "nothing was compared: no two of these directories hold the same journal")
    counts = sorted({len(those) for _, those in having})
    size = sum(max(0, common_end(number, those) - first_base(number, those)) for number, those in having)
    each = f"{counts[0]} replicas" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} replicas"
    what = "1 journal" if len(having) == 1 else f"{len(having)} journals"
    return note("replicas", f"compared {what} of {each}, {size:,} bytes, and the partitions in them")


def _compare_queues(replicas: Sequence[Replica], queues: Collection[int] | None) -> Iterator[Finding]:
    homes = {queue_id: journal for replica in replicas for queue_id, journal in replica.homes.items()}
    for queue_id in sorted({queue_id for replica in replicas for queue_id in replica.image.queues}):
        if queues is None or queue_id in queues:
            for level in _at_one_position(replicas, homes.get(queue_id)):
                yield from _missing(queue_id, level, is_sure=queues is not None)
                yield from compare_rows(queue_id, _having(queue_id, level))
            yield from compare_records(queue_id, _having(queue_id, replicas))
    for slot in sorted({row.queue_id for replica in replicas for row in replica.image.keyed.values()}):
        for level in _at_one_position(replicas, homes.get(slot)):
            yield from _compare_facts(slot, level)


def _having(queue_id: int, replicas: Sequence[Replica]) -> list[Replica]:
    return [replica for replica in replicas if queue_id in replica.image.queues]


def _at_one_position(replicas: Sequence[Replica], journal: int | None) -> Iterator[list[Replica]]:
    """At least two whose checkpoints hold the same part of a journal; if it is not known which, of all that both
    have."""
    levels: dict[object, list[Replica]] = defaultdict(list)
    for replica in replicas:
        if journal is None:
            levels[tuple(sorted((mark.journal, mark.split) for mark in replica.image.marks.values()))].append(replica)
        elif (split := replica.split(journal)) is not None:
            levels[split].append(replica)
    yield from (level for level in levels.values() if len(level) > 1)


def _missing(queue_id: int, level: Sequence[Replica], *, is_sure: bool) -> Iterator[Finding]:
    """`is_sure`: the queue exists. One of a topic that was deleted is dropped by each replica by itself."""
    most, odd = odd_ones([queue_id in replica.image.queues for replica in level])
    if not odd:
        return
    lacking = most if queue_id not in level[most[0]].image.queues else odd
    rest = [at for at in range(len(level)) if at not in lacking]
    for at in lacking:
        text = f"queue {queue_id} is not in the checkpoint, but in that of {names(level, rest)}"
        yield Finding(level[at].root, text, is_note=not is_sure)


def _compare_facts(slot: int, level: Sequence[Replica]) -> Iterator[Finding]:
    """Facts of groups and transactions; the witness is each node's own."""
    facts = [
        {place: row.value for place, row in replica.image.keyed.items() if row.queue_id == slot and place[0] != SPACE}
        for replica in level
    ]
    for place in sorted({place for known in facts for place in known}):
        most, odd = odd_ones([known.get(place) for known in facts])
        for at in odd:
            space, key = place
            text = f"{space} key {key!r} in the checkpoint differs from that of {names(level, most)}"
            yield Finding(level[at].root, text)
