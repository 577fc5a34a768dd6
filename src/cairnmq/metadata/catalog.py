"""The cluster's metadata in use: decides on the image, writes through the store, folds what was written."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Fault, Refusal, Unreachable
from cairnmq.metadata import cluster_image, groups, quotas, topics
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.decoding import number
from cairnmq.metadata.fold import MetadataFold
from cairnmq.metadata.groups import GROUP_CONFIGS
from cairnmq.metadata.image import Image, Topic
from cairnmq.metadata.quotas import QUOTAS, QuotaChange
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Change,
    Compacted,
    Conflict,
    Delete,
    InDoubt,
    Made,
    MetadataStore,
    NextEpoch,
    Op,
    Put,
    Watch,
)
from cairnmq.metadata.topics import BROKER_CONFIGS, SLOTS, TOPICS, ClusterPlaces, CreateTopic, Decision
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.cluster import cluster_config
from cairnmq.settings.group import GROUP, group_settings
from cairnmq.types import OWN_PRODUCERS_FROM, Counters, Epoch, Slots

NEXT_PRODUCER = "ids/next-producer"
CLUSTER_ID = "ids/cluster"
PREFIXES = (TOPICS, BROKER_CONFIGS, GROUP_CONFIGS, QUOTAS, "ids/")
_ATTEMPTS = 100

T = TypeVar("T")


class _Superseded(Exception):
    """Another broker changed what a decision was made on."""


class Catalog:
    """Blocking, for one thread; `image` and `cluster` may be read from any thread, because they are replaced and never
    changed.

    `journals`: those to which the queues of new topics go on one node. `in_cluster`: brokers and journals are in the
    store too, and say it."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        node_id: int = 1,
        journals: Sequence[int] = (0,),
        in_cluster: bool = False,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._folded = MetadataFold(in_cluster=in_cluster)
        self.image = self._folded.image
        self.cluster = self._folded.cluster
        self.touched = self._folded.touched  # names of topics that have changed; whoever has seen to them clears it
        self.journals = journals
        self.cluster_id = ""  # none: these metadata are new
        self._store = store
        self._node_id = node_id
        self._random_bytes = random_bytes
        self.behind = Event()  # set, on any thread, when `refresh` would find something
        self._watch: Watch | None = None

    def load(self) -> None:
        """Read everything. Called at start, and again when the store no longer has the changes since. What changes
        while it is listed is folded afterwards, so that all is of one revision."""
        if self._watch is not None:
            self._watch.close()
        before = self._store.revision
        self._watch = self._store.watch(before, self.behind.set)
        self._folded.begin(before)
        prefixes, keys = [*PREFIXES], [SLOTS]
        if self.cluster is not None:
            prefixes += cluster_image.PREFIXES
            keys += cluster_image.KEYS
        entries = [entry for prefix in prefixes for entry in self._store.list(prefix)]
        entries += [entry for entry in map(self._store.get, keys) if entry is not None]
        self._fold([Change(entry.key, entry.value, entry.revision) for entry in entries])
        entry = self._store.get(CLUSTER_ID)
        self.cluster_id = entry.value.decode() if entry is not None else ""
        self.refresh()

    def name_cluster(self, known: str = "") -> None:
        """The cluster id of new metadata: the one that others know it by, or else a random one. Not done by `load`: a
        start first finds out whether these are new, or have lost everything."""
        while not self.cluster_id:
            made = known.encode() or urlsafe_b64encode(random_id(self._random_bytes)).rstrip(b"=")
            _certain(self._store, self._store.put(CLUSTER_ID, made, ABSENT))  # a Conflict: another broker was faster
            entry = self._store.get(CLUSTER_ID)
            self.cluster_id = entry.value.decode() if entry is not None else ""

    def refresh(self) -> None:
        """Fold what others changed."""
        assert self._watch is not None, "not loaded"
        self.behind.clear()
        changes = self._watch.poll()
        if isinstance(changes, Compacted):
            self.load()
        else:
            self._fold(changes)

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """One transaction as it is, folded if it was made."""
        answer = self._store.transact(ops)
        if isinstance(answer, int):
            self._fold(_changes(ops, answer))
        return answer

    def create_topic(
        self, request: CreateTopic, *, broker: BrokerConfig, now_ms: int, validate_only: bool = False
    ) -> Topic | Refusal:
        """A new topic with a new id."""
        topic_id = random_id(self._random_bytes)

        def decide(image: Image) -> Decision | Refusal:
            return topics.create_topic(
                image,
                request,
                broker=broker,
                node_id=self._node_id,
                topic_id=topic_id,
                now_ms=now_ms,
                journals=self.journals,
                cluster=_places(self.cluster, broker),
            )

        return self._carry_out(decide, validate_only)

    def delete_topic(self, name: str, *, broker: BrokerConfig) -> Topic | Refusal:
        """Remove a topic; answers with what it was."""
        return self._carry_out(lambda image: topics.delete_topic(image, name, broker=broker), False)

    def delete_topic_by_id(self, topic_id: bytes, *, broker: BrokerConfig) -> Topic | Refusal:
        """Remove the topic of an id."""

        def decide(image: Image) -> Decision | Refusal:
            topic = image.topic_by_id(topic_id)
            if topic is None:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id")
            return topics.delete_topic(image, topic.name, broker=broker)

        return self._carry_out(decide, False)

    def add_partitions(
        self,
        name: str,
        count: int,
        *,
        broker: BrokerConfig | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic | Refusal:
        """Grow a topic to `count` partitions."""

        def decide(image: Image) -> Decision | Refusal:
            return topics.add_partitions(
                image,
                name,
                count,
                node_id=self._node_id,
                assignments=assignments,
                journals=self.journals,
                cluster=_places(self.cluster, broker),
            )

        return self._carry_out(decide, validate_only)

    def place_queues(self) -> None:
        """Topics of earlier versions get their cycles, all in one transaction."""
        _retried(self.refresh, lambda: self._commit(topics.place_queues(self.image, self.journals)))

    def alter_configs(
        self,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        broker: BrokerConfig,
        whole: bool = False,
        validate_only: bool = False,
    ) -> Topic | Refusal:
        """Change a topic's settings."""
        return self._carry_out(
            lambda image: topics.alter_configs(image, name, changes, broker=broker, whole=whole), validate_only
        )

    def alter_broker_configs(
        self,
        node_id: int | None,
        changes: Sequence[ConfigChange],
        *,
        broker: BrokerConfig,
        whole: bool = False,
        validate_only: bool = False,
    ) -> dict[str, str] | Refusal:
        """Change run-time settings of one broker, or of all (None); answers with the settings after it."""

        def attempt() -> dict[str, str] | Refusal:
            decision = topics.alter_broker_configs(self.image, node_id, changes, broker=broker, whole=whole)
            if isinstance(decision, Refusal):
                return decision
            ops, configs = decision
            if not validate_only:
                self._commit(ops)
            return configs

        return _retried(self.refresh, attempt)

    def alter_group_configs(
        self,
        group: str,
        changes: Sequence[ConfigChange],
        *,
        broker: BrokerConfig | None = None,
        whole: bool = False,
        validate_only: bool = False,
    ) -> Refusal | None:
        """Change a group's settings; the broker's are their limits."""
        settings = GROUP if broker is None else group_settings(broker)

        def attempt() -> Refusal | None:
            ops = groups.alter_group_configs(self.image, group, changes, whole=whole, settings=settings)
            if isinstance(ops, Refusal):
                return ops
            if not validate_only:
                self._commit(ops)
            return None

        return _retried(self.refresh, attempt)

    def alter_quotas(self, changes: Sequence[QuotaChange], *, validate_only: bool = False) -> list[Refusal | None]:
        """Change client quotas; those that are allowed together, in one transaction."""

        def attempt() -> list[Refusal | None]:
            ops, answers = quotas.alter_quotas(self.image, changes)
            if not validate_only:
                self._commit(ops)
            return answers

        return _retried(self.refresh, attempt)

    def broker_config(self, start: BrokerConfig, image: Image | None = None) -> BrokerConfig | Refusal:
        """This broker's settings: those of the start under those of the run time."""
        image = image or self.image
        return start.changed(image.dynamic_configs(self._node_id), image.dynamic_configs(None))

    def make_slots(self, cycle: Sequence[int]) -> Slots:
        """Where facts of coordinators go; made once for the life of the cluster, in one transaction."""
        _retried(self.refresh, lambda: self._commit(topics.make_slots(self.image, cycle)))
        assert self.image.slots is not None
        return self.image.slots

    def make_slots_replicated(self, broker: BrokerConfig) -> Slots | Refusal:
        """The same in a cluster. Refused until enough brokers are live."""
        self.refresh()

        def attempt() -> Refusal | None:
            places = _places(self.cluster, broker)
            assert places is not None, "not a cluster"
            ops = topics.make_slots_replicated(self.image, places, cluster_config(broker).coordinator_factor)
            if isinstance(ops, Refusal):
                return ops
            self._commit(ops)
            return None

        refusal = _retried(self.refresh, attempt)
        assert refusal is not None or self.image.slots is not None
        return refusal or self.image.slots  # type: ignore[return-value]

    def next_epoch(self, above: int = 0) -> Epoch:
        """One more than any epoch before, and than `above`."""
        return _reached(self._store.next_epoch(above))

    def producer_id_block(self, size: int) -> range:
        """Producer ids that nobody else will get, and that no record from elsewhere bears."""

        def attempt() -> range:
            entry = self._store.get(NEXT_PRODUCER)
            known, revision = (0, ABSENT) if entry is None else (number(entry.key, entry.value), entry.revision)
            first = max(known, OWN_PRODUCERS_FROM)
            _granted(self._store, self._store.put(NEXT_PRODUCER, str(first + size).encode(), revision))
            return range(first, first + size)

        return _retried(self.refresh, attempt)

    def counters(self) -> Counters:
        """What was handed out so far. For the thread that calls everything else."""
        entry = self._store.get(NEXT_PRODUCER)
        next_producer_id = 0 if entry is None else number(entry.key, entry.value)
        return Counters(self._store.epoch, self.image.next_queue_id, next_producer_id, self._store.revision)

    def raise_to(self, floor: Counters) -> None:
        """Hand out no id below these, and let the next change be a later one; others may know what metadata lost."""

        def attempt() -> None:
            known = self.counters()
            ops: list[Op] = []
            if known.next_queue_id < floor.next_queue_id:
                ops.append(topics.put_next_queue(floor.next_queue_id))
            if known.next_producer_id < floor.next_producer_id:
                ops.append(Put(NEXT_PRODUCER, str(floor.next_producer_id).encode()))
            self._commit(ops)

        _retried(self.refresh, attempt)
        _reached(self._store.raise_revision(floor.revision))

    def close(self) -> None:
        """Stop watching; the store belongs to the caller."""
        if self._watch is not None:
            self._watch.close()

    def _carry_out(self, decide: Callable[[Image], Decision | Refusal], validate_only: bool) -> Topic | Refusal:
        if self.cluster is not None:
            self.refresh()  # nobody is refused for what was true a moment ago

        def attempt() -> Topic | Refusal:
            decision = decide(self.image)
            if isinstance(decision, Refusal):
                return decision
            if not validate_only:
                self._commit(decision.ops)
            return decision.topic

        return _retried(self.refresh, attempt)

    def _commit(self, ops: Sequence[Op | NextEpoch]) -> None:
        """Write at the revisions that the image was made of, then fold. Topics are created one by one: all of them
        write the next queue id, so two brokers cannot give out the same ids or colliding names."""
        if not ops:
            return
        guarded = [
            replace(op, expect=self._folded.revision(op.key)) if isinstance(op, Put | Delete) else op for op in ops
        ]
        revision = _granted(self._store, self._store.transact(guarded))
        self._fold(_changes(guarded, revision))

    def _fold(self, changes: Sequence[Change]) -> None:
        self._folded.take(changes, self._store.epoch if self.cluster is not None else 0)
        self.image, self.cluster = self._folded.image, self._folded.cluster


def _places(cluster: ClusterImage | None, broker: BrokerConfig | None) -> ClusterPlaces | None:
    led = cluster_config(broker or BrokerConfig()).journals_led
    return None if cluster is None else ClusterPlaces(cluster, led)


def _retried(refresh: Callable[[], None], attempt: Callable[[], T]) -> T:
    """Another broker may be faster: learn what it did, and decide again."""
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except _Superseded:
            refresh()
    raise Fault(f"metadata: gave up after {_ATTEMPTS} conflicts")


def _changes(ops: Sequence[Op | NextEpoch], revision: int) -> list[Change]:
    """What a transaction that was made has changed."""
    puts = (op for op in ops if isinstance(op, Put | Delete))
    return [Change(op.key, op.value if isinstance(op, Put) else None, revision) for op in puts]


def _granted(store: MetadataStore, answer: int | Conflict | Away | InDoubt) -> int:
    revision = _certain(store, answer)
    if isinstance(revision, Conflict):
        raise _Superseded
    return revision


def _certain(store: MetadataStore, answer: int | Conflict | Away | InDoubt) -> int | Conflict:
    """Whether a change in doubt was made is known when the store can be asked; until then nobody is told that it was.
    If it was made after all, the next change meets it as another broker's."""
    outcome = store.resolve(answer) if isinstance(answer, InDoubt) else answer
    if isinstance(outcome, Made):
        return outcome.revision
    if isinstance(outcome, InDoubt):
        raise Unreachable(f"{outcome.reason}; whether the change was made will be seen later")
    if isinstance(outcome, Away):
        raise Unreachable(outcome.reason)
    return outcome


def _reached(answer: T | Away) -> T:
    if isinstance(answer, Away):
        raise Unreachable(answer.reason)
    return answer


def random_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random UUID that is none of Kafka's reserved ones and, as text, does not look like an option ("-...")."""
    while True:
        made = random_bytes(16)
        if any(made[:15]) and not urlsafe_b64encode(made).startswith(b"-"):
            return made
