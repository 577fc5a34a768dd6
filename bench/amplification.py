"""Row `amplification`: how many bytes the splitter writes for a byte that was produced, with packs and their merges."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import psutil

from bench.flat import REQUEST_BATCHES, RawProducer, batch, make_places
from bench.results import CAIRN, Points, Run, Store
from bench.row import Row, rounds
from bench.servers import Server, Servers
from bench.table import Column, comparison

REST_SECONDS = 12.0  # without a write: longer than a checkpoint may wait, and the merge that it allows
SETTLE_SECONDS = 300.0
SLOW_PARTS, SLOW_MB_S = 8, 2
COLUMNS = (
    Column("produced_mb", "produced MB", compared=False),
    Column("split_x", "splitter's writes / produced", compared=False),
    Column("disk_x", "disk writes of broker and splitter / produced", compared=False),
    Column("packs", "packs left", compared=False),
    Column("segmented", "queues with own segments", compared=False),
)

Send = Callable[[Server, int, int], int]
"""To so many partitions so many megabytes; says how many bytes were sent."""


def in_batches(megabytes: int) -> int:
    """A whole number of requests."""
    return megabytes * 1_000_000 // len(batch()) // REQUEST_BATCHES * REQUEST_BATCHES


def as_fast_as_it_goes(server: Server, partitions: int, megabytes: int) -> int:
    sender = RawProducer(server.port, make_places(server, partitions))
    sender.send(in_batches(megabytes))
    sender.pipe.close()
    return in_batches(megabytes) * len(batch())


def slowly(server: Server, partitions: int, megabytes: int) -> int:
    """A part of the partitions each second: rounds are small, and their packs are merged more often."""
    places = make_places(server, partitions)
    senders = [RawProducer(server.port, places[part::SLOW_PARTS]) for part in range(SLOW_PARTS)]
    share, seconds = in_batches(SLOW_MB_S), megabytes // SLOW_MB_S
    for second in range(seconds):
        until = time.monotonic() + 1
        senders[second % SLOW_PARTS].send(share)
        time.sleep(max(0.0, until - time.monotonic()))
    for sender in senders:
        sender.pipe.close()
    return seconds * share * len(batch())


def run_point(servers: Servers, name: str, send: Send, partitions: int, megabytes: int) -> Points:
    server = servers.get(CAIRN)
    processes = server.tree().processes()
    (splitter,) = [process for process in processes if "splitter_process" in " ".join(process.cmdline())]
    before = [process.io_counters() for process in processes]
    split = splitter.io_counters().write_chars
    produced = send(server, partitions, megabytes)
    rest(splitter)
    after = [process.io_counters() for process in processes]
    disk = sum(now.write_bytes - then.write_bytes for now, then in zip(after, before, strict=True))
    queues = server.data / "queues"
    values = {
        "produced_mb": produced / 1e6,
        "split_x": (splitter.io_counters().write_chars - split) / produced,
        "disk_x": disk / produced,
        "packs": float(len(list((server.data / "packs").glob("*.pack")))),
        "segmented": float(len(list(queues.iterdir())) if queues.exists() else 0),
    }
    servers.end(CAIRN)
    return {name: values}


def rest(splitter: psutil.Process) -> None:
    """Until it has written nothing for a while: what is put off is paid for too."""
    deadline, written, since = time.monotonic() + SETTLE_SECONDS, -1, time.monotonic()
    while time.monotonic() - since < REST_SECONDS:
        now = splitter.io_counters().write_chars
        if now != written:
            written, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the splitter still writes after {SETTLE_SECONDS:g} s")
        time.sleep(0.2)


def measure(store: Store, _servers: Servers) -> None:
    share = 10 if store.run.quick else 1
    points: tuple[tuple[str, Send, int, int], ...] = (
        ("10 large queues", as_fast_as_it_goes, 10, 500 // share),
        ("1,000 small queues", as_fast_as_it_goes, 1000, 500 // share),
        ("10,000 small queues", as_fast_as_it_goes, 10_000, 500 // share),
        (f"1,000 small queues, {SLOW_MB_S} MB/s", slowly, 1000, 100 // share),
    )
    with Servers("amplification") as servers:
        for number in rounds(store, full=1):
            for name, send, partitions, megabytes in points:
                act = partial(run_point, servers, name, send, partitions, megabytes)
                store.take(CAIRN, name, number, act, partial(servers.get, CAIRN))


def body(run: Run) -> str:
    return comparison(run, "load", COLUMNS)


def pictures(_run: Run) -> dict[str, str]:
    return {}


AMPLIFICATION = Row("amplification", measure, body, pictures)
