"""To which journals of a cluster the queues of a topic go; they are made with the first topic that needs them. Pure.

A journal's replicas are fixed when it is made. So a replication factor has journals of its own, and a topic has the
replicas of the journals that its queues take in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.cluster_records import NEXT_JOURNAL, broker_key, put_journal
from cairnmq.metadata.image import Topic
from cairnmq.metadata.store import Check, NextEpoch, Op, Put
from cairnmq.replication.placement import cycle_of, replica_sets
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.types import Epoch

HAND_MADE_MAX = 64
"""Journals of a cluster, up to which assignments by hand may add more: each broker syncs each of its journals."""

Journals = Sequence[tuple[int, tuple[int, ...]]]


class Choice(Struct, frozen=True):
    """Journals for queues, in turn, and what makes those that are new; it goes into the topic's transaction."""

    cycle: tuple[int, ...]
    ops: tuple[Op | NextEpoch, ...] = ()


def choose(cluster: ClusterImage, factor: int, topic_id: bytes, led: int, first: int = 0) -> Choice | Refusal:
    """For queues from partition `first` on. Each live broker is preferred to lead `led` of the journals."""
    places = cluster.live_places()
    if not 1 <= factor <= len(places):
        return _too_few(factor, [place.broker for place in places])
    present = [(number, replicas) for number, replicas in _journals(cluster) if len(replicas) == factor]
    leading = {replicas[0] for _, replicas in present}
    missing = [replicas for replicas in replica_sets(places, factor, led) if replicas[0] not in leading]
    made = list(zip(range(cluster.next_journal, cluster.next_journal + len(missing)), missing, strict=True))
    up = {place.broker for place in places}
    cycle = cycle_of([one for one in [*present, *made] if not up.isdisjoint(one[1])], topic_id)
    start = first % len(cycle)
    return Choice(cycle[start:] + cycle[:start], _made(cluster, made))


def choose_assigned(cluster: ClusterImage, assignments: Sequence[Sequence[int]]) -> Choice | Refusal:
    """For queues whose replicas somebody names, the preferred leader first."""
    wanted = [tuple(brokers) for brokers in assignments]
    refusal = _check_assignments(cluster, wanted)
    if refusal is not None:
        return refusal
    numbers = {replicas: number for number, replicas in reversed(_journals(cluster))}
    missing = [replicas for replicas in dict.fromkeys(wanted) if replicas not in numbers]
    up = {member.broker for member in cluster.live_members()}
    for replicas in missing:
        if not up.issuperset(replicas):
            return _refused(replicas, f"the live ones are {_listed(up)}")
        if len(cluster.view.journals) + len(missing) > HAND_MADE_MAX:
            return _refused(replicas, f"that needs another journal, and a cluster has at most {HAND_MADE_MAX}")
    made = list(zip(range(cluster.next_journal, cluster.next_journal + len(missing)), missing, strict=True))
    numbers |= {replicas: number for number, replicas in made}
    return Choice(_shortest([numbers[replicas] for replicas in wanted]), _made(cluster, made))


def factor_of(cluster: ClusterImage, topic: Topic) -> int:
    """How many replicas a topic's partitions have."""
    return len(cluster.view.journals[topic.partitions[0].cycle[0]].record.replicas)


def _journals(cluster: ClusterImage) -> Journals:
    return [(number, kept.record.replicas) for number, kept in sorted(cluster.view.journals.items())]


def _made(cluster: ClusterImage, journals: Journals) -> tuple[Op | NextEpoch, ...]:
    """Records of new journals. All replicas are in sync, because there is nothing to have."""
    if not journals:
        return ()
    members = {member.broker: member for member in cluster.live_members()}
    used = sorted({broker for _, replicas in journals for broker in replicas})
    epoch = Epoch(cluster.view.last_epoch + 1)
    records = (_record(number, [members[broker] for broker in replicas], epoch) for number, replicas in journals)
    return (
        NextEpoch(epoch),
        *(Check(broker_key(broker), cluster.broker_revisions[broker]) for broker in used),
        *map(put_journal, records),
        Put(NEXT_JOURNAL, str(cluster.next_journal + len(journals)).encode()),
    )


def _record(number: int, members: Sequence[Member], epoch: int) -> JournalRecord:
    return JournalRecord(number, tuple(one.broker for one in members), members[0], epoch, tuple(members))


def _shortest(numbers: Sequence[int]) -> tuple[int, ...]:
    """The shortest cycle that gives the same numbers in turn."""
    whole = tuple(numbers)
    for length in range(1, len(whole)):
        if all(number == whole[at % length] for at, number in enumerate(whole)):
            return whole[:length]
    return whole


def _check_assignments(cluster: ClusterImage, wanted: Sequence[tuple[int, ...]]) -> Refusal | None:
    for replicas in wanted:
        if not replicas:
            return _refused(replicas, "there are none")
        if len(set(replicas)) != len(replicas):
            return _refused(replicas, "one of them is named twice")
        unknown = set(replicas) - set(cluster.brokers)
        if unknown:
            return _refused(replicas, f"there is no {_listed(unknown)}")
        if len(replicas) != len(wanted[0]):
            return _refused(replicas, "all partitions of a topic have the same number of replicas")
    return None


def _refused(replicas: Sequence[int], why: str) -> Refusal:
    text = f"A partition cannot be placed on brokers {list(replicas)}: {why}"
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _too_few(factor: int, live: Sequence[int]) -> Refusal:
    if factor < 1:
        why = f"Replication factor {factor} is not possible; the minimum is 1"
    else:
        why = f"Replication factor {factor} needs {factor} live brokers; live: {_listed(live)}"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)


def _listed(brokers: Iterable[int]) -> str:
    numbers = sorted(brokers)
    return f"broker{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else "none"
