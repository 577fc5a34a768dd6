"""The broker process: starts each part in order, says that it is ready, waits for a signal, drains, stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from cairnmq.broker import logs
from cairnmq.broker.assembly import Broker, assemble
from cairnmq.broker.cluster.cluster_node import Joined
from cairnmq.broker.context import Node
from cairnmq.broker.data_directories import DataDirectories, lock_directories
from cairnmq.broker.file_limit import connections_max, raise_file_limit
from cairnmq.broker.http.server import HttpServer
from cairnmq.broker.http.status import Status
from cairnmq.broker.machine import MACHINE, limit_stacks
from cairnmq.broker.memory_budget import trim_heap
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec, ServeOptions
from cairnmq.broker.ready_file import announce, remove_ready_file
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.start_cluster import join_storage, open_shared_metadata
from cairnmq.broker.start_errors import BadUsage, CannotServe, Stopped, cannot_listen
from cairnmq.broker.start_metadata import open_metadata
from cairnmq.broker.start_report import RecoveryProgress
from cairnmq.broker.start_settings import settle
from cairnmq.broker.start_storage import open_storage
from cairnmq.errors import WITHOUT_ASSERTS, Fault
from cairnmq.os_errors import text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.start import DirectoryLock, Progress

log = logging.getLogger("cairnmq.broker")

_DRAIN_SECONDS = 5.0


def run(options: ServeOptions) -> int:
    """Serve until a signal; the process's exit code."""
    import uvloop

    limit_stacks()
    logs.configure()
    try:
        if not __debug__:
            raise BadUsage(WITHOUT_ASSERTS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            begins_again = runner.run(serve(options, MACHINE))
        if begins_again:
            log.warning("the broker starts again")
            logging.shutdown()
            os.execv(sys.executable, [sys.executable, "-m", "cairnmq", *sys.argv[1:]])
    except Stopped:
        log.info("stopped during recovery; the next start repeats it")
    except (CannotServe, Fault, OSError) as error:
        if logs.is_json():
            log.error("%s", text_of(error))
        else:
            sys.stderr.write(f"cairn serve: {text_of(error)}\n")
        return 2 if isinstance(error, BadUsage) else 1
    else:
        log.info("broker stopped")
    return 0


async def serve(options: ServeOptions, runtime: Runtime) -> bool:
    """Everything that is opened here is closed in reverse order, also when a later step fails. Returns whether the
    process is to begin again: a replica must go back to its checkpoint."""
    options, start_config = settle(options, os.environ)
    stopping, begin_again, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    failed: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _all_of(told.set, stopping.set))
    async with AsyncExitStack() as stack:
        # The journals too: a copy of the data directory has the same cluster id, and would be let write them.
        locks = lock_directories(options)
        for lock in locks:
            stack.callback(lock.close)
        bound = _bind(options.listen, "Kafka clients", "--listen")
        stack.callback(bound.close)
        internal = _bind_internal(stack, options)
        status = Status(runtime.seconds)
        http_address = await _open_http(stack, status, options.http)
        if options.ready_file is not None:
            # Not before the ports are ours: the file may be that of a process that has them.
            remove_ready_file(options.ready_file)
        files = raise_file_limit()  # before the splitter is started, which inherits it
        progress = RecoveryProgress(stopping.is_set, runtime.seconds)
        broker = await open_broker(stack, options, start_config, locks, bound, internal, progress, runtime)
        if broker.cluster is not None:
            broker.cluster.must_restart = _all_of(begin_again.set, stopping.set)
            broker.cluster.must_stop = _end_with(failed, stopping)
        ctx = broker.ctx
        connections = ConnectionSet(
            ctx, broker.router, _limits(ctx.config), lambda: connections_max(ctx.config, files), http_address
        )
        status.serve(ctx)
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        trim_heap()
        _limit_buffers(bound, ctx.config)
        listeners = [Listener(spec, connections) for spec in ctx.node.listeners]
        for listener, its_socket in zip(listeners, [bound], strict=True):
            await listener.open(its_socket)
        announce(str(ctx.node.bootstrap), http_address, options.ready_file)
        await stopping.wait()
        log.info("shutting down: finishing open requests, flushing journals")
        status.drain()
        await broker.hand_over()
        ctx.coordinators.drain()
        await close_all(listeners, connections, _DRAIN_SECONDS)
    if failed:
        raise CannotServe(failed[0])
    return begin_again.is_set() and not told.is_set()  # who stops it means also one that is about to begin again


async def open_broker(
    stack: AsyncExitStack,
    options: ServeOptions,
    start_config: BrokerConfig,
    locks: list[DirectoryLock],
    bound: socket.socket,
    internal: socket.socket | None,
    progress: Progress,
    runtime: Runtime,
) -> Broker:
    """Metadata, recovery, the parts together, and they run; `stack` closes what was opened. `internal`: of a broker
    in a cluster."""
    directories = DataDirectories.of(options)
    port = int(bound.getsockname()[1])
    joined = None
    if internal is not None:
        metadata, storage, joined = await _join(
            stack, options, directories, start_config, locks, port, internal, progress, runtime
        )
    else:
        metadata, found = await open_metadata(stack, options, directories, start_config, runtime)
        storage = await open_storage(
            directories,
            locks,
            metadata,
            found,
            node_id=options.node_id,
            accept_loss=options.accept_loss,
            progress=progress,
            runtime=runtime,
        )
    node = _node(options, metadata.catalog.cluster_id, port)
    broker = assemble(metadata, storage, node, runtime=runtime, on_config=_take_over, joined=joined)
    stack.push_async_callback(broker.close)
    await broker.start()
    return broker


async def _join(
    stack: AsyncExitStack,
    options: ServeOptions,
    directories: DataDirectories,
    start_config: BrokerConfig,
    locks: list[DirectoryLock],
    port: int,
    internal: socket.socket,
    progress: Progress,
    runtime: Runtime,
) -> tuple[OpenMetadata, OpenStorage, Joined]:
    shared = await open_shared_metadata(
        stack,
        options,
        directories,
        start_config,
        client=_advertised(options, port),
        internal=Address(*internal.getsockname()[:2]),
        runtime=runtime,
    )
    storage, member = await join_storage(
        directories, locks, shared, node_id=options.node_id, progress=progress, runtime=runtime
    )
    return shared.opened, storage, Joined(shared.store, shared.settings, shared.entry, member, internal)


def _all_of(*calls: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        for each in calls:
            each()

    return call


def _end_with(failed: list[str], stopping: asyncio.Event) -> Callable[[str], None]:
    def end(reason: str) -> None:
        failed.append(reason)
        stopping.set()

    return end


def _take_over(config: BrokerConfig) -> None:
    """Settings that were changed and are the process's own."""
    logs.set_level(config.cairn_log_level)


async def _open_http(stack: AsyncExitStack, status: Status, address: Address | None) -> Address | None:
    """Before recovery, so that /health/ready can say that it runs."""
    if address is None:
        return None
    server = HttpServer(status)
    try:
        port = await server.open(address.host, address.port)
    except OSError as error:
        raise CannotServe(cannot_listen(address, error, "status page", "--http, or use --no-http")) from error
    stack.push_async_callback(server.close)
    return replace(address, port=port)


def _limits(config: BrokerConfig) -> Limits:
    idle_ms = config.connections_max_idle_ms
    return Limits(
        request_bytes=config.socket_request_max_bytes, idle_seconds=idle_ms / 1000 if idle_ms >= 0 else float("inf")
    )


def _bind_internal(stack: AsyncExitStack, options: ServeOptions) -> socket.socket | None:
    """For the other brokers of a cluster. It listens from the start: a broker whose port refuses connections is taken
    for dead, and this one registers before it serves."""
    if not options.in_cluster:
        return None
    bound = _bind(options.internal or Address(options.listen.host, 0), "other brokers", "--internal")
    stack.callback(bound.close)
    bound.listen()
    return bound


def _bind(address: Address, purpose: str, flag: str) -> socket.socket:
    """Taken before recovery, so that a used port is told at once; clients are accepted only after it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise CannotServe(cannot_listen(address, error, purpose, flag)) from error
    return bound


def _limit_buffers(bound: socket.socket, config: BrokerConfig) -> None:
    """Connections have what their listener has."""
    for option, size in (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    ):
        if size >= 0:
            bound.setsockopt(socket.SOL_SOCKET, option, size)


def _advertised(options: ServeOptions, port: int) -> Address:
    """What clients are told to connect to."""
    advertised = options.advertise or options.listen
    host = advertised.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
        log.warning("clients will connect to %s; set another address with --advertise", host)
    return Address(host, advertised.port or port)


def _node(options: ServeOptions, cluster_id: str, port: int) -> Node:
    spec = ListenerSpec(PLAINTEXT, PLAINTEXT, options.listen, _advertised(options, port))  # the options allow one
    return Node(node_id=options.node_id, rack=options.rack, cluster_id=cluster_id, listeners=(spec,))
