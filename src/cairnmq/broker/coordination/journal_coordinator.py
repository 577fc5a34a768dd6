"""What coordinates the groups and transactional ids of one journal, from its load until another broker leads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.cores import Cores, group_limits, transaction_limits
from cairnmq.broker.coordination.fact_log import FactLog, Stored
from cairnmq.broker.coordination.offset_purge import OffsetPurge
from cairnmq.broker.coordination.transaction_coordinator import EndOffsets, StoreMarkers, TransactionCoordinator
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.messages import GroupCounts
from cairnmq.metadata.image import Image
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import Marker
from cairnmq.transactions.messages import IdCounts


class Topics(Protocol):
    """The catalog, as coordinators need it."""

    @property
    def image(self) -> Image: ...

    @property
    def config(self) -> BrokerConfig: ...

    def topic_ids(self) -> frozenset[bytes]: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    async def next_producer_id(self) -> int: ...


class Facts(Protocol):
    """The store, as coordinators need it."""

    def put_facts(self, facts: Sequence[KeyedRecord], stored: Stored) -> None: ...

    def write_markers(self, markers: Sequence[Marker]) -> Awaitable[Sequence[ErrorCode]]: ...


class Surroundings(Struct, frozen=True, eq=False):
    """What coordinators of all journals share. `steady` is for time limits, `wall` gives dates, `uuid` the ids
    of members. `write_markers` and `end_offsets`: for queues and groups in any journal."""

    topics: Topics
    store: Facts
    write_markers: StoreMarkers
    end_offsets: EndOffsets
    steady: Callable[[], int]
    wall: Callable[[], int]
    uuid: Callable[[], str]


class JournalCoordinator(Struct, frozen=True, eq=False, weakref=True):
    """`coordinator` is that of the groups. Both it and `transactions` change through `facts` alone."""

    facts: FactLog
    coordinator: Coordinator
    transactions: TransactionCoordinator
    purge: OffsetPurge

    @classmethod
    def load(
        cls,
        journal: int,
        epoch: int,
        keyed: Mapping[tuple[str, bytes], bytes],
        around: Surroundings,
        others: Callable[[], Iterable[JournalCoordinator]],
        unclean_epoch: int = 0,
    ) -> JournalCoordinator:
        """From the keyed facts of the journal, or of more: only those of its slots count. `others`: of this broker,
        with which it shares the limits. `unclean_epoch`: facts of earlier epochs may be older than what was told."""
        topics, config, slots = around.topics, around.topics.config, around.topics.image.slots
        assert slots is not None, "a cluster without slots has no coordinators"
        cores = Cores.load(
            keyed,
            around.store.put_facts,
            slots=slots,
            journal=journal,
            epoch=epoch,
            group_limits=replace(group_limits(config), elsewhere=lambda: _groups_of(others())),
            unclean_epoch=unclean_epoch,
            transaction_limits=replace(transaction_limits(config), elsewhere=lambda: _ids_of(others())),
        )
        return cls(
            cores.facts,
            Coordinator(cores.groups, cores.facts, around.steady, around.wall, around.uuid, lambda: topics.image),
            TransactionCoordinator(
                cores.transactions,
                cores.facts,
                write_markers=around.write_markers,
                end_offsets=around.end_offsets,
                next_producer_id=topics.next_producer_id,
                clock=around.steady,
                wall=around.wall,
                epoch=epoch,
            ),
            OffsetPurge(cores.facts, cores.groups),
        )

    def start(self, topics: Topics) -> None:
        """Time counts from now on, and what was prepared goes on."""
        config = topics.config
        self.coordinator.start(
            lambda: topics.config.offsets_retention_minutes * 60_000,
            config.offsets_retention_check_interval_ms,
            topics.topic_name,
        )
        self.transactions.start(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )

    def drop(self) -> None:
        """Another broker leads the journal. What is on its way is answered and not applied, nobody waits any more, and
        no time counts."""
        self.coordinator.drop()
        self.transactions.drop()
        self.facts.drop()
        self.purge.close()


def _groups_of(several: Iterable[JournalCoordinator]) -> GroupCounts:
    counts = [one.coordinator.groups.commits.counts() for one in several]
    return GroupCounts(sum(each.with_members for each in counts), sum(each.with_offsets for each in counts))


def _ids_of(several: Iterable[JournalCoordinator]) -> IdCounts:
    cores = [one.transactions.core for one in several]
    return IdCounts(sum(len(each.ids) for each in cores), sum(len(each.idle) for each in cores))
