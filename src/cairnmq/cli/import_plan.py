"""What `cairn import` found in Kafka's directories, and what it will do with it; nothing of it is sent yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from msgspec import Struct

from cairnmq.errors import Fault
from cairnmq.settings.topic import validate
from cairnmq.storage.api.kafka_import import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL,
    KafkaDirectory,
    KafkaLog,
    KafkaPartition,
    Unimportable,
    by_topic,
)
from cairnmq.wire.codec import Malformed
from cairnmq.wire.kafka_records import Committed, KafkaTopic, Topics, fold_commit

KEEP_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
MISSING_SHOWN = 10
GAP_MAX = 5_000  # partitions that other brokers may hold, where no metadata tells how many there are
AWAY = "move it out of this directory"


class TopicPlan(Struct):
    name: str
    partitions: int
    configs: dict[str, str]
    logs: list[KafkaLog]


class Plan(Struct):
    """`problems` say what makes an import impossible; with any, nothing is begun."""

    topics: list[TopicPlan]
    committed: Committed
    notes: list[str]
    problems: list[str]

    @property
    def logs(self) -> list[KafkaLog]:
        return [log for topic in self.topics for log in topic.logs]


def make_plan(
    directories: Sequence[KafkaDirectory],
    patterns: Sequence[str],
    *,
    abort_open: bool,
    offsets: bool,
    progress: Callable[[str], None],
) -> Plan:
    """Reads and checks everything that would be imported, and nothing else."""
    plan = Plan([], {}, [note for directory in directories for note in directory.notes], [])
    found = by_topic(directories)

    def checked(partitions: dict[int, KafkaPartition]) -> list[KafkaLog]:
        logs = []
        for _, partition in sorted(partitions.items()):
            progress(f"reading {partition.root}")
            try:
                logs.append(partition.check(abort_open=abort_open))
            except Fault as fault:
                plan.problems.append(str(fault))
        return logs

    described: dict[str, KafkaTopic] = {}
    if CLUSTER_METADATA in found:
        described = read_topics(found[CLUSTER_METADATA][0])
    for name, partitions in sorted(found.items()):
        if name in INTERNAL or not wanted(name, patterns):
            continue
        logs = checked(partitions)
        plan.topics.append(_topic(name, partitions, logs, described.get(name), plan))
        plan.notes.extend(text for log in logs for text in log.notes)
    internal = [name for name in INTERNAL if name in found]
    if internal:
        plan.notes.append(f"{', '.join(internal)}: internal topics of Kafka, not imported")
    if offsets and CONSUMER_OFFSETS in found:
        plan.committed = _of_topics(read_committed(checked(found[CONSUMER_OFFSETS])), plan)
    return plan


def read_topics(metadata: KafkaPartition) -> dict[str, KafkaTopic]:
    topics = Topics()
    for record in metadata.metadata_records():
        try:
            topics.fold(record.value)
        except Malformed as error:
            raise Unimportable(f"{metadata.root}: offset {record.offset}: {error}") from None
    return topics.by_name


def read_committed(logs: Iterable[KafkaLog]) -> Committed:
    """What groups committed last, from the logs of __consumer_offsets."""
    committed: Committed = {}
    for log in logs:
        for record in log.decoded(log.opens_at):
            try:
                fold_commit(committed, record.key, record.value)
            except Malformed as error:
                raise Unimportable(f"{log.root}: offset {record.offset}: {error}") from None
    return committed


def wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _topic(
    name: str,
    partitions: dict[int, KafkaPartition],
    logs: list[KafkaLog],
    described: KafkaTopic | None,
    plan: Plan,
) -> TopicPlan:
    ids = {partition.topic_id for partition in partitions.values()} - {None}
    known = described if described is not None and (not ids or described.topic_id in ids) else None
    count = known.partitions if known else max(partitions) + 1
    plan.problems.extend(_strange(partitions, known))
    missing = list(islice((number for number in range(count) if number not in partitions), MISSING_SHOWN + 1))
    if missing:
        listed = ", ".join(map(str, missing[:MISSING_SHOWN])) + (", ..." if len(missing) > MISSING_SHOWN else "")
        plan.notes.append(f"{name}: no directory holds partitions {listed}; they are created empty")
    if known is None:
        plan.notes.append(
            f"{name}: settings and number of partitions are unknown without {CLUSTER_METADATA}; the broker's defaults "
            f"apply, including retention (-c retention.ms=-1 keeps everything)"
        )
    return TopicPlan(name, count, settings_of(name, known.configs if known else {}, plan.notes), logs)


def _strange(partitions: dict[int, KafkaPartition], known: KafkaTopic | None) -> Iterator[str]:
    """Directories that look like partitions but cannot be, such as a copy with a date: `orders-20261116`."""
    before = -1
    for number, partition in sorted(partitions.items()):
        if known is not None and number >= known.partitions:
            yield f"{partition.root}: the topic has {known.partitions} partitions, so this is not one; {AWAY}"
        elif known is None and number - before > GAP_MAX:
            missing = number - before - 1
            yield f"{partition.root}: {missing} partitions before it are missing; {AWAY} if it is not a partition"
        before = number


def settings_of(name: str, configs: dict[str, str], notes: list[str]) -> dict[str, str]:
    """The settings of Kafka that CairnMQ supports; each of the others becomes a note."""
    taken = {}
    for key, value in sorted(configs.items()):
        refusal = validate(key, value)
        why = refusal.message if refusal is not None else None
        if key == "min.insync.replicas" and value != "1":
            why = "a single broker has one replica, so every write would fail"
        if why is None:
            taken[key] = value
        else:
            notes.append(f"{name}: {key}={value} is not imported: {why}")
    policy = configs.get("cleanup.policy", "delete")
    if policy != taken.get("cleanup.policy", "delete"):
        if "delete" not in policy:
            taken |= KEEP_FOR_EVER
            notes.append(f"{name}: kept forever (retention.ms=-1), because Kafka deleted none of it by age")
    return taken


def _of_topics(committed: Committed, plan: Plan) -> Committed:
    """Only offsets of what is imported."""
    counts = {topic.name: topic.partitions for topic in plan.topics}
    kept = {
        group: {place: offset for place, offset in offsets.items() if place.partition < counts.get(place.topic, 0)}
        for group, offsets in committed.items()
    }
    return {group: offsets for group, offsets in kept.items() if offsets}
