"""A start in a cluster: metadata that brokers share, registration, recovery as a follower.

In this order (R10): everything is read; the metadata are compared with what was found; the broker registers under a new
epoch; only then files are changed. What it leads and follows is said by the metadata from there on.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial

from msgspec import Struct

from cairnmq import __version__, kernels
from cairnmq.broker import logs
from cairnmq.broker.cluster.cluster_store import ClusterStore
from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.directory_owner import (
    METADATA_FILE,
    MOVED,
    refuse_new_store,
    refuse_other_broker,
    refuse_other_cluster,
    was_alone,
)
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.options import Address, ServeOptions, parse_address
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.start_errors import CannotServe
from cairnmq.broker.start_metadata import BESIDE_METADATA
from cairnmq.broker.start_report import tell_scans
from cairnmq.broker.start_storage import arm_fault_point, engine_config
from cairnmq.broker.store_wait import StoreWait
from cairnmq.errors import Locked, Refusal, Unreachable
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.cluster_records import BrokerEntry
from cairnmq.metadata.move import move_metadata
from cairnmq.metadata.shared_place import SharedPlace
from cairnmq.metadata.shared_store import open_shared
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import MetadataStore
from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.lives import Lacking, others_have
from cairnmq.replication.records import BrokerRecord, Member
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.cluster import ClusterConfig, cluster_config
from cairnmq.storage.api.start import (
    DirectoryLock,
    Engine,
    Joining,
    Leader,
    OwnerWitness,
    Progress,
    ReplicaNote,
    begin,
    find_journals,
    read_owner,
)
from cairnmq.types import Counters
from cairnmq.wire.internal_handshake import proof_of_secret

log = logging.getLogger("cairnmq.broker")


class SharedMetadata(Struct, frozen=True, eq=False):
    """Open, with what this broker registers as. `name`: as --metadata has it. `is_new`: the cluster begins here.
    `wait`: for a store that is away during the start."""

    opened: OpenMetadata
    store: ClusterStore
    settings: ClusterConfig
    entry: BrokerEntry
    name: str
    is_new: bool
    wait: StoreWait


async def open_shared_metadata(
    stack: AsyncExitStack,
    options: ServeOptions,
    directories: DataDirectories,
    start_config: BrokerConfig,
    *,
    client: Address,
    internal: Address,
    runtime: Runtime,
    open_store: Callable[[SharedPlace], MetadataStore] = open_shared,
) -> SharedMetadata:
    """The file is made if it is not there; the first broker names the cluster. Nothing is registered yet."""
    place = options.shared_place
    assert place is not None
    loop = asyncio.get_running_loop()
    journal_disk, data_disk = directories.journal_disk(), directories.data_disk()
    read_owner(journal_disk)  # before anything is opened: of a newer version nothing is touched
    is_from_alone = was_alone(journal_disk, data_disk)
    thread = runtime.executor("metadata", 1)
    stack.callback(thread.shutdown)
    if await loop.run_in_executor(thread, place.is_missing):
        refuse_new_store(options.data, str(place), journal_disk, data_disk)
    wait = StoreWait(place, runtime.seconds, runtime.sleep)
    try:
        store = await loop.run_in_executor(thread, wait.until, partial(open_store, place), Locked)
    except (OSError, Unreachable) as error:
        raise CannotServe(f"--metadata {place}: {error}") from error
    stack.push_async_callback(loop.run_in_executor, thread, store.close)
    move = partial(_move_own, directories, store, str(place), options.node_id)
    await loop.run_in_executor(thread, wait.until, move)
    catalog = Catalog(store, node_id=options.node_id, journals=(), random_bytes=runtime.random_bytes, in_cluster=True)
    await loop.run_in_executor(thread, wait.until, catalog.load)
    stack.callback(catalog.close)
    config = catalog.broker_config(start_config)
    if isinstance(config, Refusal):
        raise CannotServe(config.message)
    logs.set_level(config.cairn_log_level)
    refuse_other_cluster(options.data, str(place), journal_disk, catalog.cluster_id)
    assert catalog.cluster is not None
    refuse_other_broker(options.data, options.node_id, journal_disk, catalog.cluster, was_alone=is_from_alone)
    is_new = not catalog.cluster_id
    await loop.run_in_executor(thread, wait.until, catalog.name_cluster)
    directory = runtime.random_bytes(16).hex()
    witness = OwnerWitness(journal_disk, catalog.cluster_id, options.node_id, directory, in_cluster=True)
    settings = cluster_config(config)
    entry = _entry(options, settings, client, internal, witness.directory)
    cluster_store = _cluster_store(store, catalog, options.node_id, settings, runtime)
    opened = OpenMetadata(catalog, thread, config, witness)
    return SharedMetadata(opened, cluster_store, settings, entry, str(place), is_new, wait)


def _cluster_store(
    store: MetadataStore, catalog: Catalog, node_id: int, settings: ClusterConfig, runtime: Runtime
) -> ClusterStore:
    return ClusterStore(
        store,
        node_id,
        settings.session_ms,
        catalog=catalog,
        clock=runtime.boot_ms,
        sleep=runtime.sleep,
        proof=proof_of_secret(settings.secret, catalog.cluster_id),
    )


def _entry(
    options: ServeOptions, settings: ClusterConfig, client: Address, internal: Address, directory: str
) -> BrokerEntry:
    """Where this broker is found."""
    if settings.internal_advertise is not None:
        internal = parse_address(settings.internal_advertise)
    return BrokerEntry(
        BrokerRecord(options.node_id, 0),
        client.host,
        client.port,
        internal.host,
        internal.port,
        options.rack,
        directory,
    )


def _move_own(directories: DataDirectories, shared: MetadataStore, name: str, node_id: int) -> None:
    """A broker that was alone brings its metadata along, once, into a store that is empty."""
    disk = directories.data_disk()
    if not disk.exists(METADATA_FILE):
        return
    journals = find_journals(directories.journal_disk(), ())
    with closing(SqliteStore(os.path.join(directories.data, METADATA_FILE))) as own:
        if move_metadata(own, shared, node_id, journals):
            log.info("the metadata of this broker moved to %s; its topics keep one replica", name)
    for name in (METADATA_FILE, *BESIDE_METADATA):
        if disk.exists(name):
            disk.rename(name, name + MOVED)
    disk.sync_dir("")


async def join_storage(
    directories: DataDirectories,
    locks: Sequence[DirectoryLock],
    shared: SharedMetadata,
    *,
    node_id: int,
    progress: Progress,
    runtime: Runtime,
) -> tuple[OpenStorage, Member]:
    """Recovered, in the life in which this broker is registered. On a thread of its own: /health is still served."""
    arm_fault_point(shared.opened.config)
    joining = _Join(directories, shared, runtime, node_id, progress)
    started = runtime.seconds()
    engine = await asyncio.to_thread(joining.run)
    seconds = runtime.seconds() - started
    assert joining.member is not None
    for journal in engine.hosting.installed if engine.hosting is not None else ():
        log.info("journal %d: continues with what was taken over from its leader", journal)
    log.info(
        "cairn %s (%s): recovered %d %s in %.3f s%s, registered as broker %d under epoch %d",
        __version__,
        kernels.summary(),
        len(engine.queues),
        "partition" if len(engine.queues) == 1 else "partitions",
        seconds,
        " after a clean stop" if engine.was_clean else "",
        node_id,
        joining.member.broker_epoch,
    )
    cluster_id, where = shared.opened.catalog.cluster_id, shared.name
    if shared.is_new:
        log.info("new cluster %s in %s, with broker %d as its first", cluster_id, where, node_id)
    else:
        log.info("joined cluster %s of %s as broker %d", cluster_id, where, node_id)
    opened = OpenStorage(
        engine,
        None,
        directories.journal,
        directories.data,
        [lock.fileno() for lock in locks],
        recovery_seconds=seconds,
    )
    return opened, joining.member


class _Join:
    """Runs on a thread; what it asks of the metadata is done on theirs, and waited for."""

    def __init__(
        self,
        directories: DataDirectories,
        shared: SharedMetadata,
        runtime: Runtime,
        node_id: int,
        progress: Progress,
    ) -> None:
        self._directories = directories
        self._shared = shared
        self._runtime = runtime
        self._node_id = node_id
        self._progress = progress
        self._catalog = shared.opened.catalog
        cluster = self._catalog.cluster
        assert cluster is not None
        self._view = cluster.view
        self._known = cluster.brokers.get(node_id)
        self.member: Member | None = None

    def run(self) -> Engine:
        hosted = {number for number, kept in self._view.journals.items() if self._node_id in kept.record.replicas}
        image, config = self._catalog.image, self._shared.opened.config
        specs = [spec for spec in all_queue_specs(image, config) if spec.journal in hosted]
        return Engine.join(
            self._directories.journal_disk(),
            self._directories.data_disk(),
            specs,
            journals=hosted,
            floor=self._floor,
            next_queue=image.next_queue_id,
            begin=self._begin,
            has_others=self._has_others,
            had=self._had,
            given_up=frozenset(filter(self._is_given_up, hosted)),
            slots=self._slots_in,
            seed=self._runtime.random_bits(32),
            config=engine_config(config, self._node_id),
            now_ms=self._runtime.wall_ms(),
            progress=self._progress,
            tell=tell_scans,
        )

    def _has_others(self, journal: int) -> bool:
        return others_have(self._view.journals[journal].record, self._node_id, self._view)

    def _had(self, journal: int) -> int:
        """Up to where this directory has had a journal that was damaged and not cut; 0 if it was not."""
        known = self._known
        if known is None or known.directory_id != self._shared.entry.directory_id or self._is_given_up(journal):
            return 0
        return known.record.had.get(journal, 0)

    def _is_given_up(self, journal: int) -> bool:
        """Whether a person has elected this broker although it lacks what is noted. It could write nothing since."""
        record, known = self._view.journals[journal].record, self._known
        is_alone = [member.broker for member in record.isr] == [self._node_id]
        return (
            known is not None
            and journal in known.record.had
            and is_alone
            and record.unclean > known.record.broker_epoch
        )

    def _slots_in(self, journal: int) -> list[int]:
        slots = self._catalog.image.slots
        if slots is None:
            return []
        places = map(slots.place, range(slots.first, slots.first + slots.count))
        return [place.queue_id for place in places if place.journal == journal]

    def _floor(self, journal: int, note: ReplicaNote) -> int:
        record = self._view.journals[journal].record
        return KnownEnds(note.replicated, note.durable, note.epoch).floor(record)

    def _begin(self, joining: Joining) -> Leader:
        """Compares, registers, writes the witness; files are changed after that."""
        registration = _Registration(self._shared, joining)
        thread = self._shared.opened.thread
        witness, name = self._shared.opened.witness, self._shared.name
        thread.submit(begin, registration, joining.known, witness.keep, shared=name).result()
        self.member = registration.member
        assert self.member is not None
        return Leader(self.member.broker, self.member.broker_epoch)


class _Registration:
    """The metadata as a start compares them, on their thread. The epoch that it is given is this broker's life."""

    def __init__(self, shared: SharedMetadata, joining: Joining) -> None:
        self._shared = shared
        self._joining = joining
        self.member: Member | None = None

    def counters(self) -> Counters:
        return self._shared.wait.until(self._shared.opened.catalog.counters)

    def raise_to(self, floor: Counters) -> None:
        self._shared.wait.until(partial(self._shared.opened.catalog.raise_to, floor))

    def next_epoch(self, above: int = 0) -> int:
        joining, shared = self._joining, self._shared
        lacking = Lacking(joining.damaged, joining.had, joining.whole)
        register = partial(shared.store.register, shared.entry, joining.stopped_as, lacking)
        self.member = shared.wait.until(register)
        return self.member.broker_epoch
