"""The machine as a broker that serves uses it: the real clocks, threads, connections and random numbers."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from cairnmq.broker.clocks import SYSTEM_CLOCKS
from cairnmq.broker.internal.link import connect
from cairnmq.broker.runtime import Executor, Runtime
from cairnmq.broker.storage_loop.splitter_child import start_splitter
from cairnmq.metadata.machine_clock import boot_ms

_STACK_BYTES = 1 << 20  # of a thread; the usual 8 MiB count where memory is limited (RLIMIT_DATA), used or not


def limit_stacks() -> None:
    """Of threads that are started from now on."""
    threading.stack_size(_STACK_BYTES)


def _executor(name: str, threads: int) -> Executor:
    return ThreadPoolExecutor(threads, name)


def _uuid() -> str:
    return str(uuid4())


MACHINE = Runtime(
    wall_ms=SYSTEM_CLOCKS.wall_ms,
    steady_ms=SYSTEM_CLOCKS.steady_ms,
    seconds=SYSTEM_CLOCKS.seconds,
    sleep=SYSTEM_CLOCKS.sleep,
    boot_ms=boot_ms,
    executor=_executor,
    random_bits=secrets.randbits,
    random_bytes=secrets.token_bytes,
    uuid=_uuid,
    start_splitter=start_splitter,
    connect=connect,
)
