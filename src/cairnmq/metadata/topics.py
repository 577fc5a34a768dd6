"""The decisions that change topics and broker settings, and how both are stored. Pure.

A decision answers with store operations and what will be true after them, or with a refusal; it never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.image import ALL_BROKERS, Image, QueueRange, Topic
from cairnmq.metadata.journal_choice import Choice, choose, choose_assigned, factor_of
from cairnmq.metadata.store import Delete, NextEpoch, Op, Put
from cairnmq.settings.alteration import ConfigChange, Operation, alter, replacement
from cairnmq.settings.broker import BrokerConfig, validate_dynamic
from cairnmq.settings.broker_table import BROKER, current_name
from cairnmq.settings.topic import default_text, validate, validate_all
from cairnmq.settings.topic_table import TOPIC
from cairnmq.types import Slots

__all__ = ["CreateTopic", "Decision", "Image", "Topic"]

NAME_LENGTH_MAX = 249
DIRECTORY_LENGTH_MAX = 255
PARTITIONS_MAX = 1_000_000
"""Of one topic. No rule of Kafka's, but one request must not be able to ask for two thousand million queues."""

UNKNOWN_SIZE_MAX = 1 << 20
"""Of broker settings that nobody knows, names and values together: any client may set any."""

NEXT_QUEUE = "ids/next-queue"
SLOTS = "slots"
SLOT_COUNT = 24
"""Of a cluster, for its life: another number would send groups to other slots."""

TOPICS = "topics/"
BROKER_CONFIGS = "configs/"

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class CreateTopic(Struct, frozen=True, kw_only=True):
    """What a client asks for; -1 means the broker's default. `assignments`: partition -> broker ids, or none."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: dict[int, list[int]] = {}
    configs: dict[str, str | None] = {}


class Decision(Struct, frozen=True):
    """Operations for one transaction and the topic as it will be (as it was, for a deletion)."""

    ops: tuple[Op | NextEpoch, ...]
    topic: Topic


class ClusterPlaces(Struct, frozen=True):
    """What decides in a cluster where queues go. `led`: journals that each broker is preferred to lead."""

    image: ClusterImage
    led: int


def check_name(name: str) -> Refusal | None:
    """Kafka's rules of topic names."""
    if name == "":
        why = "it is empty"
    elif name in (".", ".."):
        why = "it cannot be '.' or '..'"
    elif len(name) > NAME_LENGTH_MAX:
        why = f"it is longer than {NAME_LENGTH_MAX} characters"
    elif not _NAME.fullmatch(name):
        why = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name {name[:300]!r}: {why}")


def create_topic(
    image: Image,
    request: CreateTopic,
    *,
    broker: BrokerConfig,
    node_id: int,
    topic_id: bytes,
    now_ms: int,
    journals: Sequence[int] = (0,),
    cluster: ClusterPlaces | None = None,
) -> Decision | Refusal:
    """A new topic, with queue ids that no topic ever had, spread over these journals; those of a cluster, if it is
    one."""
    refusal = check_name(request.name)
    if refusal is not None:
        return refusal
    if image.topic(request.name) is not None:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {request.name!r} already exists")
    other = image.colliding(request.name)
    if other is not None:
        why = f"Topic {request.name!r} collides with {other!r}: they differ only in '.' and '_'"
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    count = _partition_count(request, broker)
    if isinstance(count, Refusal):
        return count
    if cluster is None:
        choice = _choose_alone(image, request, node_id, journals)
    elif request.assignments:
        choice = choose_assigned(cluster.image, [request.assignments[each] for each in range(count)])
    else:
        default = broker.default_replication_factor
        factor = default if request.replication_factor == -1 else request.replication_factor
        choice = choose(cluster.image, factor, topic_id, cluster.led)
    if isinstance(choice, Refusal):
        return choice
    if _too_long(request.name, count):
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The name is too long for a topic of {count} partitions")
    configs: dict[str, str] = {}
    for name, text in request.configs.items():
        if text is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{name} needs a value")
        configs[name] = text
    refusal = validate_all(configs, broker)
    if refusal is not None:
        return refusal
    queues = QueueRange(image.next_queue_id, count, choice.cycle)
    topic = Topic(request.name, topic_id, (queues,), configs, now_ms)
    return Decision((*choice.ops, put_topic(topic), put_next_queue(image.next_queue_id + count)), topic)


def make_slots(image: Image, cycle: Sequence[int]) -> tuple[Op, ...]:
    """The system queues of the coordinators, with ids of their own; once, whoever is first. `cycle`: their journals."""
    if image.slots is not None:
        return ()
    slots = Slots(image.next_queue_id, SLOT_COUNT, tuple(cycle))
    return Put(SLOTS, msgspec.json.encode(slots)), put_next_queue(slots.first + slots.count)


def make_slots_replicated(image: Image, places: ClusterPlaces, factor: int) -> tuple[Op | NextEpoch, ...] | Refusal:
    """The same in a cluster, once so many brokers are live; their replicas stay for the life of the cluster."""
    if image.slots is not None:
        return ()
    choice = choose(places.image, factor, bytes(1), places.led)
    if isinstance(choice, Refusal):
        live = ", ".join(str(member.broker) for member in places.image.live_members())
        why = (
            f"consumer groups begin when {factor} brokers have been live together "
            f"(offsets.topic.replication.factor); live now: {live}"
        )
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    return *choice.ops, *make_slots(image, choice.cycle)


def delete_topic(image: Image, name: str, *, broker: BrokerConfig) -> Decision | Refusal:
    """Remove a topic; its queue ids stay used up."""
    topic = image.topic(name)
    if topic is None:
        return _unknown(name)
    if not broker.delete_topic_enable:
        return Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    return Decision((Delete(TOPICS + name),), topic)


def add_partitions(
    image: Image,
    name: str,
    count: int,
    *,
    node_id: int,
    assignments: Sequence[Sequence[int]] | None = None,
    journals: Sequence[int] = (0,),
    cluster: ClusterPlaces | None = None,
) -> Decision | Refusal:
    """Grow a topic to `count` partitions; new ones go to these journals, or to those of the topic's replication factor
    in a cluster. `assignments`: broker ids of each new one."""
    topic = image.topic(name)
    if topic is None:
        return _unknown(name)
    now = topic.count
    if count <= now:
        why = f"already has {now} partitions" if count == now else f"has {now} partitions; {count} is not an increase"
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic {name!r} {why}")
    if count > PARTITIONS_MAX or _too_long(name, count):
        return _too_many(count)
    if assignments is not None and len(assignments) != count - now:
        why = f"{count - now} partitions are new, but {len(assignments)} have an assignment"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    first = image.next_queue_id
    choice = _choose_more(topic, first, node_id, assignments, journals, cluster)
    if isinstance(choice, Refusal):
        return choice
    ranges, more = topic.partitions, QueueRange(first, count - now, choice.cycle)
    last = ranges[-1]
    if last.end == first and last.continued() == more.cycle:
        ranges, more = ranges[:-1], replace(last, count=last.count + more.count)
    topic = replace(topic, partitions=(*ranges, more))
    return Decision((*choice.ops, put_topic(topic), put_next_queue(first + count - now)), topic)


def _choose_more(
    topic: Topic,
    first: int,
    node_id: int,
    assignments: Sequence[Sequence[int]] | None,
    journals: Sequence[int],
    cluster: ClusterPlaces | None,
) -> Choice | Refusal:
    """Journals of a topic's new partitions."""
    if cluster is None:
        refusals = (_check_assignment(brokers, node_id) for brokers in assignments or ())
        return next(filter(None, refusals), Choice(_cycle(journals, first)))
    factor = factor_of(cluster.image, topic)
    if assignments is None:
        return choose(cluster.image, factor, topic.topic_id, cluster.led, topic.count)
    if len(assignments[0]) != factor:
        why = f"The partitions of {topic.name!r} have {factor} replicas, not {len(assignments[0])}"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return choose_assigned(cluster.image, assignments)


def alter_configs(
    image: Image, name: str, changes: Sequence[ConfigChange], *, broker: BrokerConfig, whole: bool = False
) -> Decision | Refusal:
    """Change a topic's settings; no operations when nothing becomes different. `whole`: what is not named goes."""
    topic = image.topic(name)
    if topic is None:
        return check_name(name) or _unknown(name)
    for change in changes:
        if change.name not in TOPIC and change.operation != Operation.DELETE:
            refusal = validate(change.name, "")
            assert refusal is not None, change.name
            return refusal
    configs = alter(
        topic.configs,
        replacement(topic.configs, changes) if whole else changes,
        setting=lambda key: TOPIC[key].setting,
        default=lambda key: default_text(key, broker),
    )
    if isinstance(configs, Refusal):
        return configs
    refusal = validate_all(configs, broker)
    if refusal is not None:
        return refusal
    if configs == topic.configs:
        return Decision((), topic)
    topic = replace(topic, configs=configs)
    return Decision((put_topic(topic),), topic)


def alter_broker_configs(
    image: Image, node_id: int | None, changes: Sequence[ConfigChange], *, broker: BrokerConfig, whole: bool = False
) -> tuple[tuple[Op, ...], dict[str, str]] | Refusal:
    """Change the run-time settings of one broker, or of all (None); operations and the settings after them.

    `whole`: settings that are not named go.
    """
    now = image.dynamic_configs(node_id)
    changes = list(map(_with_current_name, changes))
    for change in changes:
        if change.name not in BROKER and change.operation in (Operation.APPEND, Operation.SUBTRACT):
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Unknown setting {change.name}: cannot append or subtract, because its type is unknown",
            )
    altered = replacement(now, changes) if whole else changes
    configs = alter(now, altered, setting=BROKER.get, default=broker.text)
    if isinstance(configs, Refusal):
        return configs
    for change in changes:
        refusal = validate_dynamic(change.name, configs[change.name]) if change.name in configs else None
        if refusal is not None:
            return refusal
    built = broker.changed(configs, {})
    if isinstance(built, Refusal):
        return Refusal(ErrorCode.INVALID_REQUEST, built.message)
    if sum(len(name) + len(text) for name, text in configs.items() if name not in BROKER) > UNKNOWN_SIZE_MAX:
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown settings may not take more than 1 MB in total")
    if configs == now:
        return (), configs
    key = BROKER_CONFIGS + (ALL_BROKERS if node_id is None else str(node_id))
    return ((Put(key, msgspec.json.encode(configs)) if configs else Delete(key)),), configs


def _with_current_name(change: ConfigChange) -> ConfigChange:
    return replace(change, name=current_name(change.name))


def place_queues(image: Image, journals: Sequence[int]) -> list[Put]:
    """Topics of earlier versions get cycles."""
    return list(map(put_topic, _newly_placed(image, journals)))


def placed(image: Image, journals: Sequence[int]) -> Image:
    """As it will be after that."""
    return image.after(image.version, put=_newly_placed(image, journals))


def _newly_placed(image: Image, journals: Sequence[int]) -> Iterator[Topic]:
    """Each queue keeps the journal that its id has given it so far, if the journals are what they were."""
    for topic in image.topics.values():
        ranges = tuple(
            each if each.cycle else replace(each, cycle=_cycle(journals, each.first)) for each in topic.partitions
        )
        if ranges != topic.partitions:
            yield replace(topic, partitions=ranges)


def _cycle(journals: Sequence[int], first: int) -> tuple[int, ...]:
    """Queue ids take the journals in turn, so that many small topics are spread as evenly as a large one. A range
    stores its part of that, because there may be other journals later."""
    start = first % len(journals)
    return (*journals[start:], *journals[:start])


def put_topic(topic: Topic) -> Put:
    """Store a topic: one key, however many partitions."""
    return Put(TOPICS + topic.name, msgspec.json.encode(topic))


def put_next_queue(number: int) -> Put:
    """Store the next free queue id."""
    return Put(NEXT_QUEUE, str(number).encode())


def _partition_count(request: CreateTopic, broker: BrokerConfig) -> int | Refusal:
    if request.assignments:
        if request.partitions != -1 or request.replication_factor != -1:
            why = "With manual assignments, partitions and replication factor must be -1"
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        if sorted(request.assignments) != list(range(len(request.assignments))):
            why = "Manual assignments must name the partitions 0, 1, 2, ... without a gap"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        return len(request.assignments)
    count = broker.num_partitions if request.partitions == -1 else request.partitions
    if count <= 0:
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"A topic cannot have {count} partitions; the minimum is 1")
    if count > PARTITIONS_MAX:
        return _too_many(count)
    return count


def _choose_alone(image: Image, request: CreateTopic, node_id: int, journals: Sequence[int]) -> Choice | Refusal:
    """One broker holds one replica."""
    if not request.assignments and request.replication_factor not in (1, -1):
        why = f"Replication factor {request.replication_factor} is not possible: there is 1 broker"
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    refusals = (_check_assignment(brokers, node_id) for brokers in request.assignments.values())
    return next(filter(None, refusals), Choice(_cycle(journals, image.next_queue_id)))


def _check_assignment(brokers: Sequence[int], node_id: int) -> Refusal | None:
    if list(brokers) == [node_id]:
        return None
    why = f"A partition cannot be placed on brokers {list(brokers)}: the only broker is {node_id}"
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _unknown(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name[:300]!r}")


def _too_long(name: str, count: int) -> bool:
    """A partition has a directory with its topic's name and its number."""
    return len(f"{name}-{count - 1}") > DIRECTORY_LENGTH_MAX


def _too_many(count: int) -> Refusal:
    return Refusal(ErrorCode.INVALID_PARTITIONS, f"{count} partitions are more than the limit of {PARTITIONS_MAX}")


def decode_topic(value: bytes) -> Topic:
    """A stored topic; msgspec.DecodeError when it is not one."""
    return msgspec.json.decode(value, type=Topic)


def decode_slots(value: bytes) -> Slots:
    return msgspec.json.decode(value, type=Slots)


def decode_configs(value: bytes) -> dict[str, str]:
    """Stored run-time settings of a broker."""
    return msgspec.json.decode(value, type=dict[str, str])
