"""What a client knows of the cluster, and how calls are carried out, without I/O.

A call is a plan: a generator that yields what to ask of which broker (or a pause) and is sent the answers. Any shell
can carry plans out: blocking.py does with sockets, an event loop can with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.client.errors import (
    COORDINATOR_MOVED,
    LEADER_MOVED,
    RETRIABLE,
    UNCERTAIN,
    Absent,
    ClientError,
    Disconnected,
    Refused,
    Unreachable,
)
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)

T = TypeVar("T")
R = TypeVar("R")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
GROUP, TRANSACTION = 0, 1  # what a coordinator is asked for
NEWS_ATTEMPTS = 4
CREATION_ATTEMPTS = 8  # an auto-created topic may be unknown for a moment; a broker that creates none always says so


class Ask(Struct, frozen=True):
    """One request to one broker; node None: any broker will do. `brief`: it is answered at once, so if several brokers
    could be asked, one that is silent does not get all the time."""

    node: int | None
    request: Message
    min_version: int = 0
    answered: bool = True
    wait_seconds: float = 0.0  # how long the broker may sit on it, beyond the usual timeout
    brief: bool = False


class Pause(Struct, frozen=True):
    """Wait before the next attempt; `reason` is what to report if there is no time for one."""

    seconds: float
    reason: ClientError


Step: TypeAlias = Sequence[Ask] | Pause
Plan: TypeAlias = Generator[Step, Sequence[object], T]


class Node(Struct, frozen=True):
    """A broker as the cluster advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(Struct, frozen=True):
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int


class Topic(Struct, frozen=True):
    """A topic as one metadata answer described it."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[Partition, ...]
    error: int = 0

    def partition(self, index: int) -> Partition:
        for partition in self.partitions:
            if partition.index == index:
                return partition
        last = len(self.partitions) - 1
        held = f"partitions 0 to {last}" if last else "only partition 0"
        message = f"partition {index} does not exist; the topic has {held}"
        raise Absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self.name}", message)


class Cluster(Struct, frozen=True):
    """One metadata answer."""

    cluster_id: str | None
    controller: int
    nodes: dict[int, Node]
    topics: dict[str, Topic]


class Session:
    """Brokers, leaders and coordinators as far as they are known; plans fill and use it."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.unread: list[Refused] = []  # partitions that the last fetch had to leave out; the next one tries again
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def ask(self, node: int | None, request: Message, answer: type[R], min_version: int = 0) -> Plan[R]:
        """Asks one broker and gives its answer."""
        (reply,) = yield from self.ask_all([Ask(node, request, min_version)], answer)
        return reply

    def ask_until_answered(
        self, node: int | None, request: Message, answer: type[R], *, twice_is_harmless: bool = True
    ) -> Plan[R]:
        """The same, and again if the broker is away: while nothing was sent, or whenever asking twice does no harm."""
        plan = self.retrying(lambda: self.ask(node, request, answer), twice_is_harmless=twice_is_harmless)
        return (yield from plan)

    def ask_all(self, asks: Sequence[Ask], answer: type[R]) -> Plan[list[R]]:
        """Asks several brokers at once; the first failure is raised when all are done."""
        replies = yield asks
        found: list[R] = []
        for reply in replies:
            if isinstance(reply, ClientError):
                raise reply
            assert isinstance(reply, answer), f"{type(reply).__name__} is not a {answer.__name__}"
            found.append(reply)
        return found

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> Plan[Cluster]:
        """Asks for brokers and topics (None: all), and remembers who leads what."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        (answer,) = yield from self.ask_all([Ask(None, request, brief=True)], MetadataResponse)
        cluster = _cluster(answer)
        self.nodes = cluster.nodes or self.nodes
        for topic in cluster.topics.values():
            if topic.error:
                self._topics.pop(topic.name, None)
            else:
                self._topics[topic.name] = topic
                self._names[topic.topic_id] = topic.name
        return cluster

    def topic(self, name: str, *, create: bool = False) -> Plan[Topic]:
        """The topic, from memory if it is known; Refused if there is none."""
        if name in self._topics:
            return self._topics[name]
        attempts = 0
        while True:
            cluster = yield from self.metadata([name], create=create)
            if name in self._topics:
                return self._topics[name]
            code = cluster.topics[name].error if name in cluster.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = Absent(code, f"topic {name}")
            attempts += 1
            # Of several brokers one may not have heard yet of a topic that was made elsewhere.
            tries = CREATION_ATTEMPTS if create else NEWS_ATTEMPTS if len(self.nodes) > 1 else 0
            appearing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and attempts < tries
            if not appearing and code != ErrorCode.LEADER_NOT_AVAILABLE:
                raise refused
            yield Pause(_pause(attempts), refused)

    def leader(self, topic: Topic, index: int) -> int:
        """The node that leads a partition; Refused (and worth a retry) while there is none."""
        partition = topic.partition(index)
        if partition.leader not in self.nodes:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic.name}-{index}")
        return partition.leader

    def follow(self, place: TopicPartition, leader: int, epoch: int, endpoints: Iterable[Node]) -> bool:
        """A broker that does not lead a partition has named who does (KIP-951). False: that is no news."""
        known = self._topics.get(place.topic)
        nodes = self.nodes | {node.node_id: node for node in endpoints}
        if known is None or leader not in nodes:
            return False
        before = known.partition(place.partition)
        if epoch <= before.leader_epoch:
            return False
        now = replace(before, leader=leader, leader_epoch=epoch, error=0)
        partitions = tuple(now if each is before else each for each in known.partitions)
        self.nodes, self._topics[place.topic] = nodes, replace(known, partitions=partitions)
        return True

    def name_of(self, name: str, topic_id: bytes) -> str:
        """The topic's name from an answer that carries either a name or an id, by its version."""
        return name or self._names.get(topic_id, "")

    def coordinator(self, key: str, kind: int = GROUP) -> Plan[int]:
        """The node that keeps a group's offsets, or a transactional id's state."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.nodes:
            return known
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        (answer,) = yield from self.ask_all([Ask(None, request, brief=True)], FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            what = "group" if kind == GROUP else "transactional id"
            raise Refused(found.error_code, f"{what} {key}", found.error_message)
        self.nodes.setdefault(found.node_id, Node(found.node_id, found.host, found.port))
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget(self) -> None:
        """Everything may have moved: the next attempt asks again."""
        self._topics.clear()
        self._coordinators.clear()

    def retrying(self, attempt: Callable[[], Plan[T]], *, twice_is_harmless: bool = True) -> Plan[T]:
        """Carries out `attempt` until it succeeds or fails for good; the shell ends it when time is up."""
        attempts = 0
        while True:
            try:
                return (yield from attempt())
            except Refused as refused:
                final = isinstance(refused, Absent) or refused.code not in RETRIABLE
                if final or (refused.code in UNCERTAIN and not twice_is_harmless):
                    raise
                reason: ClientError = refused
                if (refused.code in LEADER_MOVED or refused.code in COORDINATOR_MOVED) and not refused.is_followed:
                    self.forget()
            except (Disconnected, Unreachable) as lost:
                if isinstance(lost, Disconnected) and not twice_is_harmless:
                    raise
                reason = lost
                self.forget()
            attempts += 1
            yield Pause(_pause(attempts), reason)


def _pause(attempts: int) -> float:
    doubled: float = FIRST_PAUSE_SECONDS * 2 ** min(attempts - 1, 10)
    return min(doubled, LONGEST_PAUSE_SECONDS)


def _cluster(answer: MetadataResponse) -> Cluster:
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
    topics: dict[str, Topic] = {}
    for row in answer.topics:
        if row.name is None:
            continue
        partitions = [
            Partition(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                p.error_code,
            )
            for p in row.partitions
        ]
        partitions.sort(key=lambda p: p.index)
        topics[row.name] = Topic(row.name, row.topic_id, row.is_internal, tuple(partitions), row.error_code)
    return Cluster(answer.cluster_id, answer.controller_id, nodes, topics)
