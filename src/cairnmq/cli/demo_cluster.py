"""`cairn demo --brokers 3`: a cluster of processes with traffic, and an invitation to kill one of them."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairnmq.cli.demo_story import Sample, Story
from cairnmq.cli.demo_traffic import Checker, Look, Worker, Writer
from cairnmq.cli.terminal import DIM, RED, YELLOW, error, note, paint, write_line
from cairnmq.errors import Fault
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.local_broker import LocalCluster

TOPIC, PARTITIONS, REPLICAS = "orders", 6, 3
# As users run it: every record is on disk of all in-sync replicas before it is acknowledged.
SETTINGS = {"cairn.flush": "commit"}
LINE_SECONDS, LOOK_SECONDS, LEAVE_SECONDS = 1.0, 0.1, 2.0


def run_cluster(brokers: int, limit: float | None) -> None:
    from cairnmq.local_broker import LocalCluster

    replicas = min(brokers, REPLICAS)
    with LocalCluster(brokers, http=True, settings=SETTINGS) as cluster:
        _create_topic(cluster.bootstrap, replicas)
        _tell(cluster)
        returns = Returns(cluster)
        with _traffic(cluster.bootstrap) as (writers, checker, look):

            def sample() -> Sample:
                up = {n: broker.pid for n, broker in cluster.brokers.items() if broker.running and not returns.busy(n)}
                return _sample(up, writers, checker, look)

            try:
                _watch(Story(cluster.brokers, replicas, keys=sys.stdin.isatty()), sample, returns, limit)
            finally:
                note(_sum_up(sample()))


class Returns:
    """Brokers that are being started again, each on a thread: lines go on meanwhile."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._threads: dict[int, threading.Thread] = {}
        self._failed: list[str] = []

    def busy(self, number: int) -> bool:
        return number in self._threads and self._threads[number].is_alive()

    def start(self, number: int) -> None:
        if not self.busy(number):
            thread = threading.Thread(target=self._restart, args=(number,), name=f"restart-{number}", daemon=True)
            self._threads[number] = thread
            thread.start()

    def failures(self) -> list[str]:
        """Since the last call."""
        failed, self._failed = self._failed, []
        return failed

    def _restart(self, number: int) -> None:
        try:
            self._cluster.restart(number)
        except Fault as fault:
            self._failed.append(f"broker {number}: {fault}")


def _watch(story: Story, sample: Callable[[], Sample], returns: Returns, limit: float | None) -> None:
    """Until the limit: sentences as things happen, a line each second."""
    seen = sample()
    end = None if limit is None else seen.now + limit
    next_line = seen.now + LINE_SECONDS
    story.line(seen)
    while end is None or seen.now < end:
        pressed = _pressed(LOOK_SECONDS)
        seen = sample()
        for sentence in story.said(seen):
            write_line(paint(sentence, YELLOW, sys.stdout))
        for failure in returns.failures():
            error(failure)
        if seen.now >= next_line:
            next_line += LINE_SECONDS
            write_line(paint(story.line(seen), RED if seen.wrong else DIM, sys.stdout))
        for number in story.dead if pressed else story.due(seen.now):
            returns.start(number)
        sys.stdout.flush()


def _sum_up(seen: Sample) -> str:
    lost = f"{seen.wrong:,} LOST OR READ TWICE" if seen.wrong else "none of them lost or read twice"
    left = f", {seen.acked - seen.read:,} not read yet" if seen.acked > seen.read else ""
    return f"{seen.acked:,} records were acknowledged, {seen.read:,} read{left}; {lost}."


def _pressed(seconds: float) -> bool:
    """Waits, on a terminal for Enter."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and bool(sys.stdin.readline())


def _create_topic(bootstrap: str, replicas: int) -> None:
    from cairnmq.client.admin import NewTopic
    from cairnmq.client.blocking import Client

    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    with Client.connect(bootstrap, client_id="demo-admin") as client:
        for outcome in client.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, configs)]).values():
            if isinstance(outcome, Exception):
                raise outcome


def _tell(cluster: LocalCluster) -> None:
    write_line(f"bootstrap    {cluster.bootstrap}")
    for number, broker in cluster.brokers.items():
        write_line(f"broker {number}     pid {broker.pid}, status page {broker.url}")
    write_line(f"try          cairn cluster health -b {cluster.bootstrap} --watch")
    write_line(f"             cairn topic describe -b {cluster.bootstrap} {TOPIC}")
    sys.stdout.flush()
    note(f"Topic {TOPIC}: {PARTITIONS} partitions; each record is acknowledged when all in-sync replicas have it.")
    note("Ctrl-C stops the brokers and removes their data.")


@contextmanager
def _traffic(bootstrap: str) -> Iterator[tuple[dict[int, Writer], Checker, Look]]:
    writers = {number: Writer(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)}
    checker, look = Checker(TOPIC, PARTITIONS), Look(TOPIC)
    workers = [Worker(bootstrap, f"writer-{number}", writer.write) for number, writer in writers.items()]
    workers += [Worker(bootstrap, "reader", checker.follow), Worker(bootstrap, "look", look.look)]
    try:
        for worker in workers:
            worker.start()
        yield writers, checker, look
    finally:
        for worker in workers:
            worker.stopping.set()
        deadline = time.monotonic() + LEAVE_SECONDS
        for worker in workers:
            worker.wait(max(0.0, deadline - time.monotonic()))


def _sample(up: dict[int, int], writers: dict[int, Writer], checker: Checker, look: Look) -> Sample:
    seen = look.partitions
    return Sample(
        time.monotonic(),
        up,
        {part.index: part.leader for part in seen},
        {part.index: len(part.isr) for part in seen},
        {number: writer.acked_at for number, writer in writers.items()},
        {number: tuple(writer.gaps) for number, writer in writers.items()},
        sum(writer.acked for writer in writers.values()),
        checker.read,
        checker.wrong,
    )
