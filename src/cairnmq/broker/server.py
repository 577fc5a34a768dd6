"""The broker process: starts everything in order, says that it is ready, waits for a signal, drains, stops."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing

from msgspec.structs import replace

from cairnmq import __version__, kernels
from cairnmq.broker import logs
from cairnmq.broker.context import Context, Node
from cairnmq.broker.coordination.offset_purge import Leftovers
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.http.server import HttpServer
from cairnmq.broker.http.status import Status
from cairnmq.broker.live_catalog import LiveCatalog, queue_specs
from cairnmq.broker.memory_budget import trim_heap
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec, ServeOptions
from cairnmq.broker.routes import build_router
from cairnmq.broker.start_errors import cannot_listen, cannot_use
from cairnmq.broker.start_report import tell_scans, tell_strays
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import Corrupt, Fault, Lost, Outdated, Refusal
from cairnmq.groups.offsets import SPACE, Offsets
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.os_errors import reason_of, text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.sources import load
from cairnmq.storage.api.start import (
    UNFINISHED,
    DirectoryLock,
    Engine,
    EngineConfig,
    Known,
    Loss,
    OwnerWitness,
    Progress,
    QueueSpec,
    RealDisk,
    accept,
    arm,
    begin,
    check_owner,
    find_loss,
    find_metadata_loss,
    find_strays,
    lock_all,
    put_aside,
    read_owner,
)
from cairnmq.types import Counters

log = logging.getLogger("cairnmq.broker")

_DRAIN_SECONDS = 5.0
_METADATA_FILE = "meta.db"
_BESIDE_METADATA = tuple(_METADATA_FILE + suffix for suffix in ("-wal", "-shm", "-journal"))  # SQLite's
_LOCK_WAIT_SECONDS = 2.0
_LOSSES_MAX = 4  # that are accepted in one start: some show only when another is out of the way
_FILES_OF_OUR_OWN = 2000
_STACK_BYTES = 1 << 20  # of a thread; the usual 8 MiB count where memory is limited (RLIMIT_DATA), used or not
_MAPPED = {
    "listen": "listeners",
    "advertise": "advertised.listeners",
    "data": "log.dirs",
    "node_id": "node.id",
    "rack": "broker.rack",
}


class Unservable(Exception):
    """The broker cannot start; the text is for the person who started it."""


class Stopped(Exception):
    """A signal came before the start was done."""


class WrongUsage(Unservable):
    """Flags or settings say something that cannot be."""


def run(options: ServeOptions) -> int:
    """Serve until a signal; the process's exit code."""
    import uvloop

    threading.stack_size(_STACK_BYTES)
    logs.configure()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options))
    except Stopped:
        log.info("stopped during recovery; the next start begins it again")
    except (Unservable, Fault, OSError) as error:
        if logs.is_json():
            log.error("%s", text_of(error))
        else:
            sys.stderr.write(f"cairn serve: {text_of(error)}\n")
        return 2 if isinstance(error, WrongUsage) else 1
    return 0


def settle(options: ServeOptions, environment: dict[str, str]) -> tuple[ServeOptions, BrokerConfig]:
    """Flags, file, environment and --set as one; raises Unservable with every reason."""
    file = None
    if options.config is not None:
        try:
            with open(options.config, encoding="utf-8") as source:
                file = (options.config, source.read())
        except UnicodeDecodeError as error:
            raise WrongUsage(f"--config {options.config}: it is not a text file in UTF-8") from error
        except OSError as error:
            raise WrongUsage(f"--config {options.config}: {reason_of(error)}") from error
    flags = {_MAPPED[name]: str(getattr(options, name)) for name in _MAPPED if name in options.given}
    loaded = load(file=file, environment=environment, sets=options.settings, flags=flags)
    if isinstance(loaded, Refusal):
        raise WrongUsage(loaded.message)
    logs.configure(loaded.config.cairn_log_level, loaded.config.cairn_log_format)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    settled = options.with_settings(loaded.config.layers.static)
    if isinstance(settled, Refusal):
        raise WrongUsage(settled.message)
    refusal = settled.refusal()
    if refusal is not None:
        raise WrongUsage(refusal.message)
    return settled, loaded.config


async def serve(options: ServeOptions) -> None:
    """Everything that is opened here is closed in reverse order, also when a later step fails."""
    options, start_config = settle(options, dict(os.environ))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        # The journals too: a copy of the data directory has the same cluster id, and would be let write them.
        held = _lock(options)
        for one in held:
            stack.callback(one.close)
        bound = _bind(options.listen)
        stack.callback(bound.close)
        status = Status(time.monotonic)
        http_address = await _open_http(stack, status, options.http)
        if options.ready_file is not None:
            # A file left by an earlier process would tell a lie until we are ready. Not before the ports are ours: it
            # may be that of a process that has them.
            _remove(options.ready_file)
        ctx, connections = await _open_broker(stack, options, start_config, bound, held, _Progress(stopping))
        status.ctx = ctx
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        trim_heap()
        _limit_buffers(bound, ctx.config)
        listeners = [Listener(spec, connections) for spec in ctx.node.listeners]
        for listener, its_socket in zip(listeners, [bound], strict=True):
            await listener.open(its_socket)
        _announce(str(ctx.node.bootstrap), http_address, options.ready_file)
        await stopping.wait()
        log.info("shutting down: finishing open requests, flushing journals")
        status.draining = True
        ctx.coordinator.drain()
        await close_all(listeners, connections, _DRAIN_SECONDS)


async def _open_http(stack: AsyncExitStack, status: Status, address: Address | None) -> Address | None:
    """Before recovery, so that /health/ready can say that it runs."""
    if address is None:
        return None
    server = HttpServer(status)
    try:
        port = await server.open(address.host, address.port)
    except OSError as error:
        raise Unservable(cannot_listen(address, error, "status page", "--http, or use --no-http")) from error
    stack.push_async_callback(server.close)
    return replace(address, port=port)


async def _open_broker(
    stack: AsyncExitStack,
    options: ServeOptions,
    start_config: BrokerConfig,
    bound: socket.socket,
    held: list[DirectoryLock],
    progress: Progress,
) -> tuple[Context, ConnectionSet]:
    loop = asyncio.get_running_loop()
    files = _raise_file_limit()  # before the splitter is started, which inherits it
    directories = _directories(options)
    owner = read_owner(RealDisk(directories[0]))  # before anything is opened: of a newer version nothing is touched
    found = FoundMetadata(options.data, _METADATA_FILE)
    await asyncio.to_thread(found.keep)
    stack.callback(found.put_back)  # when the metadata are closed, unless a decision was made on them
    await asyncio.to_thread(_replace_lost_metadata, options, directories, found)
    thread = ThreadPoolExecutor(1, thread_name_prefix="metadata")
    stack.callback(thread.shutdown)
    metadata = await loop.run_in_executor(thread, SqliteStore, os.path.join(options.data, _METADATA_FILE))
    stack.push_async_callback(loop.run_in_executor, thread, metadata.close)
    catalog = Catalog(metadata, node_id=options.node_id)
    await loop.run_in_executor(thread, catalog.load)
    stack.callback(catalog.close)
    config = catalog.broker_config(start_config)
    if isinstance(config, Refusal):
        raise Unservable(config.message)
    logs.set_level(config.cairn_log_level)
    await asyncio.to_thread(
        check_owner,
        RealDisk(directories[0]),
        RealDisk(directories[1]),
        catalog.cluster_id,
        where=directories[0],
        has_topics=bool(catalog.image.topics),
        accept_loss=options.accept_loss,
    )
    await loop.run_in_executor(thread, catalog.name_cluster, owner.cluster_id if owner is not None else "")
    specs = [spec for topic in catalog.image.topics.values() for spec in queue_specs(topic, config)]
    witness = OwnerWitness(RealDisk(directories[0]), catalog.cluster_id, config.cairn_journals)
    start = _Start(catalog, thread, witness, found)
    store = await _open_store(options, directories, config, specs, start, held, progress)
    stack.push_async_callback(store.stop)
    live = LiveCatalog(catalog, thread, store, config, now_ms, witness)
    stack.push_async_callback(live.close)
    offsets = Offsets.load(store.load_facts(SPACE))
    router = build_router(coordinates=store.has_all_facts)
    ctx = Context(
        store=store,
        catalog=live,
        config=config,
        node=_node(options, catalog.cluster_id, bound),
        offsets=offsets,
        router=router,
        clock=now_ms,
    )
    connections = ConnectionSet(ctx, router, _limits(config), _connections_max(config, files))

    def reconfigure(changed: BrokerConfig) -> None:
        ctx.config = changed
        logs.set_level(changed.cairn_log_level)
        connections.maximum = _connections_max(changed, files)
        store.reconfigure(changed)

    leftovers = Leftovers(ctx.facts, ctx.coordinator.groups, lambda: live.image)
    live.on_deleted = leftovers.of_topic
    live.on_config = reconfigure
    stack.callback(leftovers.close)
    stack.push_async_callback(ctx.coordinator.close)
    stack.push_async_callback(ctx.transactions.close)
    if not store.has_all_facts:
        return ctx, connections  # decided on what is known, groups and transactions would go back to an older state
    leftovers.start()
    await asyncio.sleep(0)  # what it has to store stands before what clients bring
    ctx.coordinator.start(
        lambda: ctx.config.offsets_retention_minutes * 60_000,
        config.offsets_retention_check_interval_ms,
        lambda topic_id: topic.name if (topic := live.image.topic_by_id(topic_id)) is not None else None,
    )
    ctx.transactions.start(
        config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
    return ctx, connections


def _lock(options: ServeOptions) -> list[DirectoryLock]:
    """Makes the directories where they are missing."""
    directories = (("--data", options.data), ("--journal-dir", _directories(options)[0]))
    try:
        return lock_all([path for _, path in directories], _LOCK_WAIT_SECONDS)
    except OSError as error:
        flag, path = directories[0 if options.journal_dir is None or not os.path.isdir(options.data) else 1]
        raise Unservable(cannot_use(flag, path, error)) from error


def _directories(options: ServeOptions) -> tuple[str, str]:
    """Of the journals, and of the rest."""
    return options.journal_dir or os.path.join(options.data, "journal"), options.data


def _replace_lost_metadata(options: ServeOptions, directories: tuple[str, str], found: FoundMetadata) -> None:
    """A new file hides that the old one is gone, and what no topic claims is deleted. So it gets its name only when all
    that was there is put aside: a start that is stopped before that is done again, with the same file.

    One in which nothing stands is as good as gone: SQLite drops a damaged write-ahead log without a word."""
    disk, begun = RealDisk(options.data), _METADATA_FILE + UNFINISHED
    is_there = disk.exists(_METADATA_FILE)
    if is_there:
        with closing(SqliteStore(os.path.join(options.data, _METADATA_FILE))) as store:
            if store.revision:
                return
        found.put_back()  # what is put aside, or left, is what was there
    what = f"{_METADATA_FILE} is empty" if is_there else "the metadata is missing"
    loss = find_metadata_loss(RealDisk(directories[0]), disk, what)
    if is_there and loss is None:
        return  # the first start was stopped before it had begun
    if loss is None and not disk.exists(begun):
        return
    if loss is not None and not options.accept_loss:
        raise Lost(loss.text())
    with (
        closing(SqliteStore(os.path.join(options.data, begun))) as store,
        closing(Catalog(store, node_id=options.node_id)) as catalog,
    ):
        catalog.load()
        owner = read_owner(RealDisk(directories[0]))
        catalog.name_cluster(owner.cluster_id if owner is not None else "")
        known = loss.known if loss is not None else Known()
        epoch = catalog.next_epoch(known.floor.epoch)
        catalog.raise_to(known.floor)
        if loss is not None:
            _accept(directories, loss, epoch)
    if disk.exists(begun + "-wal"):
        raise Unservable(f"{begun} could not be finished: is the disk full?")
    # Of the lost file, if a broker was killed: SQLite would replay it into the new one.
    put_aside(disk, [name for name in (_METADATA_FILE, *_BESIDE_METADATA) if disk.exists(name)], epoch)
    disk.rename(begun, _METADATA_FILE)
    disk.sync_dir("")


def _accept(directories: tuple[str, str], loss: Loss, epoch: int) -> None:
    journal_disk, read_disk = map(RealDisk, directories)
    for line in [*loss.what, *(f"lost: {queue}" for queue in loss.queues)]:
        log.error("--accept-loss: %s", line)
    accept(journal_disk, read_disk, loss, epoch=epoch, seed=secrets.randbits(32), now_ms=now_ms())


class _Start:
    """The catalog for the thread that recovers: everything is done on the metadata thread, and waited for."""

    def __init__(
        self, catalog: Catalog, thread: ThreadPoolExecutor, witness: OwnerWitness, found: FoundMetadata
    ) -> None:
        self._catalog = catalog
        self._thread = thread
        self._witness = witness
        self._found = found

    def counters(self) -> Counters:
        return self._thread.submit(self._catalog.counters).result()

    def begin(self, known: Known) -> int:
        epoch = self._thread.submit(begin, self._catalog, known, self._witness.keep).result()
        self._found.forget()
        return epoch

    def accept(self, loss: Loss, directories: tuple[str, str]) -> None:
        """The ids last: until the loss is remembered on disk, a start without --accept-loss is refused."""
        if loss.is_outdated:
            loss.what.append(f"these may be old: {self._catalog.image.summary()}")
        floor = loss.known.floor
        epoch = self._thread.submit(self._catalog.next_epoch, floor.epoch).result()
        if loss.is_outdated:
            self._found.put_aside(epoch)
        self._found.forget()  # from here on files bear this epoch, so the metadata must not forget it
        _accept(directories, loss, epoch)
        self._thread.submit(self._catalog.raise_to, floor).result()


async def _open_store(
    options: ServeOptions,
    directories: tuple[str, str],
    config: BrokerConfig,
    specs: list[QueueSpec],
    start: _Start,
    held: list[DirectoryLock],
    progress: Progress,
) -> Store:
    """Recovery, on a thread of its own so that /health stays answered."""
    journal_dir, data_dir = directories
    engine_config = EngineConfig(
        journals=config.cairn_journals,
        segment_bytes=config.cairn_journal_segment_bytes,
        retain_bytes=config.cairn_journal_retention_bytes,
        unsplit_bytes_max=config.cairn_unsplit_bytes_max,
        unsplit_entries_max=config.cairn_unsplit_entries_max,
    )
    if config.cairn_fault_point:
        arm(config.cairn_fault_point, lambda: os.kill(os.getpid(), signal.SIGKILL))

    def open_engine() -> Engine:
        return Engine.open(
            RealDisk(journal_dir),
            RealDisk(data_dir),
            specs,
            begin=start.begin,
            seed=secrets.randbits(32),
            config=engine_config,
            now_ms=now_ms(),
            refuse_damage=options.accept_loss,
            progress=progress,
            tell=tell_scans,
        )

    def recover() -> Engine:
        for _ in range(_LOSSES_MAX):
            try:
                return open_engine()
            except Corrupt as error:
                loss = find_loss(RealDisk(journal_dir), RealDisk(data_dir), specs, start.counters())
                if loss is None:
                    raise
                if not options.accept_loss:
                    if isinstance(error, Outdated):
                        raise
                    raise Lost(loss.text()) from None
            start.accept(loss, directories)
        return open_engine()

    started = time.monotonic()
    engine = await asyncio.to_thread(recover)
    seconds = time.monotonic() - started
    tell_strays(find_strays(RealDisk(journal_dir), range(len(engine.paths))), journal_dir)
    log.info(
        "cairn %s (%s): recovered %d queues in %.3f s, epoch %d",
        __version__,
        kernels.summary(),
        len(engine.queues),
        seconds,
        engine.epoch,
    )
    store = Store(
        engine,
        lock_fds=[one.fileno() for one in held],
        journal_dir=journal_dir,
        data_dir=data_dir,
        config=config,
        clock=now_ms,
        recovery_seconds=seconds,
    )
    store.start()
    return store


class _Progress:
    """Says how far recovery is, at most once a second, and ends it when the broker is to stop: a scan changes nothing,
    and whatever else recovery does a crash may interrupt too."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._next = time.monotonic() + 1.0

    def __call__(self, scanned: int, whole: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 1.0
            log.info("recovery: %d of %d journal bytes scanned", scanned, whole)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _raise_file_limit() -> int:
    """As many open files as the system lets us have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def _connections_max(config: BrokerConfig, files: int) -> int:
    """A flood of connections must leave files for the journals and logs."""
    return min(config.max_connections, files - max(files // 4, min(_FILES_OF_OUR_OWN, files // 2)))


def _limits(config: BrokerConfig) -> Limits:
    idle_ms = config.connections_max_idle_ms
    return Limits(
        request_bytes=config.socket_request_max_bytes, idle_seconds=idle_ms / 1000 if idle_ms >= 0 else float("inf")
    )


def _bind(address: Address) -> socket.socket:
    """Taken before recovery, so that a used port is told at once; clients are accepted only after it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise Unservable(cannot_listen(address, error, "Kafka clients", "--listen")) from error
    return bound


def _limit_buffers(bound: socket.socket, config: BrokerConfig) -> None:
    """Connections have what their listener has."""
    for option, size in (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    ):
        if size >= 0:
            bound.setsockopt(socket.SOL_SOCKET, option, size)


def _node(options: ServeOptions, cluster_id: str, bound: socket.socket) -> Node:
    port = int(bound.getsockname()[1])
    advertised = options.advertise or options.listen
    host = advertised.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
        log.warning("clients are told to connect to %s; name another address with --advertise", host)
    told = Address(host, advertised.port or port)
    spec = ListenerSpec(PLAINTEXT, PLAINTEXT, options.listen, told)  # the options allow one listener
    return Node(node_id=options.node_id, rack=options.rack, cluster_id=cluster_id, listeners=(spec,))


def _announce(bootstrap: str, http: Address | None, ready_file: str | None) -> None:
    url = None if http is None else f"http://{http}"
    if ready_file is not None:
        # Before the line: whoever has read that may expect the file.
        temporary = f"{ready_file}.{os.getpid()}.tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"bootstrap": bootstrap, "http": url, "pid": os.getpid()}, file)
            os.replace(temporary, ready_file)
        except OSError as error:
            raise Unservable(f"--ready-file {ready_file}: {reason_of(error)}") from error
    sys.stdout.write(f"cairn ready bootstrap={bootstrap} http={url or '-'} pid={os.getpid()}\n")
    sys.stdout.flush()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unservable(f"--ready-file {path}: {reason_of(error)}") from error
