"""Group members of every client: what a member owned, lost and read, as it told it itself.

A member lives in a process: one that all tests share, or one of its own that can be killed. Python clients and the
programs tell the same lines (process.py); kcat is one process per member, and what it prints is read here.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from broker_process import wait_until
from interop.clients.process import PROGRAMS_DIR, ClientProcess, Event, shared_process

PYTHON_PROGRAM = Path(__file__).parents[1] / "programs" / "python" / "program.py"
IN_PYTHON = ("librdkafka", "aiokafka", "kafka_python")
SECONDS = 120.0  # a hundred members on a busy machine; only a failure uses it up
Place = tuple[str, int]
numbers = itertools.count()


class Shown(NamedTuple):
    """A record that a member showed."""

    topic: str
    partition: int
    offset: int
    value: str


class Wish(NamedTuple):
    """How a member joins."""

    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance: str | None = None
    cooperative: bool = False
    protocol: str = "classic"
    """Or "consumer": the one of KIP-848, whose session and heartbeats are the broker's to set."""
    session_ms: int = 6_000
    heartbeat_ms: int = 200
    metadata_ms: int = 500


class Host(Protocol):
    """Where members live. `late_us`: how much later than it happened an event may be told."""

    late_us: int

    def join(self, member: Member) -> None: ...

    def seek(self, member: Member, place: Place, offset: int) -> None: ...

    def leave(self, member: Member) -> None: ...

    def kill(self) -> None:
        """kill -9: its members say nothing any more."""


class Member:
    """One consumer of a group; its story is written by the thread that hears it and read by the test."""

    def __init__(self, host: Host, wish: Wish) -> None:
        self.name = f"member-{next(numbers)}"
        self.host = host
        self.wish = wish
        self.owned: set[Place] = set()
        self.moves: list[tuple[int, str, frozenset[Place]]] = []
        """(microseconds, "assigned" or "revoked", partitions)"""
        self.records: list[Shown] = []
        self.failures: list[str] = []
        self.gone = False
        host.join(self)

    def hear(self, event: Event) -> None:
        if event["event"] == "records":
            self.records += [Shown(*record) for record in event["records"]]
        elif event["event"] in ("assigned", "revoked"):
            places = frozenset((topic, partition) for topic, partition in event["partitions"])
            self.moves.append((event["at"], event["event"], places))
            self.owned = self.owned | places if event["event"] == "assigned" else self.owned - places
        elif event["event"] == "failed":
            self.failures.append(event["text"])

    @property
    def values(self) -> list[str]:
        return [record.value for record in self.records]

    def seek(self, place: Place, offset: int) -> None:
        self.host.seek(self, place, offset)

    def leave(self) -> None:
        self.gone = True
        self.host.leave(self)

    def wait_owning(self, count: int) -> None:
        wait_for(lambda: len(self.owned) == count, f"{self.name} to own {count} partitions", self)


def wait_for(condition: Callable[[], bool], what: str, *members: Member) -> None:
    """Also ends when a member has failed, and shows why."""

    def failures() -> list[str]:
        return [failure for member in members for failure in member.failures]

    wait_until(lambda: condition() or failures(), SECONDS, what)
    assert not failures(), failures()[0]


class ProgramHost:
    """A program that holds any number of members."""

    late_us = 0

    def __init__(self, process: ClientProcess) -> None:
        self.process = process

    def join(self, member: Member) -> None:
        self.process.listeners[member.name] = member.hear
        self.process.ask("member.join", member=member.name, **member.wish._asdict())

    def seek(self, member: Member, place: Place, offset: int) -> None:
        topic, partition = place
        self.process.ask(
            "member.seek",
            bootstrap=member.wish.bootstrap,
            member=member.name,
            topic=topic,
            partition=partition,
            offset=offset,
        )

    def leave(self, member: Member) -> None:
        self.process.ask("member.leave", bootstrap=member.wish.bootstrap, member=member.name)

    def kill(self) -> None:
        self.process.kill()


class KcatHost:
    """A kcat per member. It commits by itself every 100 ms, and when it loses partitions or ends.

    It tells no times: an event counts from when its line was read, which on a busy machine is later than it happened.
    """

    late_us = 2_000_000

    def __init__(self) -> None:
        self.running: dict[str, tuple[subprocess.Popen[bytes], list[threading.Thread]]] = {}

    def join(self, member: Member) -> None:
        wish = member.wish
        options = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "session.timeout.ms": wish.session_ms,
            "heartbeat.interval.ms": wish.heartbeat_ms,
            "topic.metadata.refresh.interval.ms": wish.metadata_ms,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky" if wish.cooperative else "range",
        }
        if wish.instance is not None:
            options["group.instance.id"] = wish.instance
        line = ["kcat", "-b", wish.bootstrap, "-G", wish.group, "-u", "-E", "-f", "%t %p %o %s\n"]
        for name, value in options.items():
            line += ["-X", f"{name}={value}"]
        line += wish.topics if wish.pattern is None else [wish.pattern]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None and process.stderr is not None
        threads = [
            threading.Thread(target=self.hear, args=(member, self.records(process.stdout)), daemon=True),
            threading.Thread(target=self.hear, args=(member, self.moves(process.stderr)), daemon=True),
        ]
        self.running[member.name] = process, threads
        for thread in threads:
            thread.start()

    @staticmethod
    def hear(member: Member, events: Iterator[Event]) -> None:
        for event in events:
            member.hear({"at": time.time_ns() // 1000, **event})

    @staticmethod
    def records(stream: IO[bytes]) -> Iterator[Event]:
        for line in stream:
            topic, partition, offset, value = line.decode().rstrip("\n").split(" ", 3)
            yield {"event": "records", "records": [(topic, int(partition), int(offset), value)]}

    @staticmethod
    def moves(stream: IO[bytes]) -> Iterator[Event]:
        """% Group g rebalanced (memberid m): assigned: topic [0], topic [1]
        % Group g rebalanced: incremental revoke of 1 partition(s) (memberid m, COOPERATIVE ... protocol): topic [0]
        """
        for line in stream:
            found = re.search(
                r"rebalanced.*(?:\): (assign|revok)|incremental (assign|revok)e?.*\): )(.*)", line.decode()
            )
            if found:
                event = {"assign": "assigned", "revok": "revoked"}[found[1] or found[2]]
                places = re.findall(r"(\S+) \[(\d+)\]", found[3])
                yield {"event": event, "partitions": [(topic, int(partition)) for topic, partition in places]}

    def seek(self, member: Member, place: Place, offset: int) -> None:
        raise NotImplementedError("kcat reads once, from where it was started")

    def leave(self, member: Member) -> None:
        self.end(member.name, signal.SIGTERM)

    def kill(self) -> None:
        for name in list(self.running):
            self.end(name, signal.SIGKILL)

    def end(self, name: str, signal_number: int) -> None:
        process, threads = self.running.pop(name)
        process.send_signal(signal_number)
        try:
            process.wait(SECONDS)
        finally:
            process.kill()
        for thread in threads:
            thread.join(SECONDS)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def command_of(client: str) -> list[str]:
    if client in IN_PYTHON:
        return [sys.executable, str(PYTHON_PROGRAM), client]
    return [str(PROGRAMS_DIR / client)]


def shared_host(client: str) -> Host:
    return KcatHost() if client == "kcat" else ProgramHost(shared_process(command_of(client)))


def own_host(client: str) -> Host:
    """A process that nobody else uses, to be killed."""
    return KcatHost() if client == "kcat" else ProgramHost(ClientProcess(command_of(client)))


class Stage:
    """Members of one client for one test: ends them all, and no member may have failed."""

    def __init__(self, client: str, bootstrap: str) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.shared = shared_host(client)
        self.own: list[Host] = []
        self.members: list[Member] = []

    def host(self) -> Host:
        self.own.append(own_host(self.client))
        return self.own[-1]

    def join(self, group: str, *topics: str, host: Host | None = None, **options: object) -> Member:
        wish = Wish(self.bootstrap, group, topics, **options)  # type: ignore[arg-type]
        member = Member(host or self.shared, wish)
        self.members.append(member)
        return member

    def crash(self, member: Member) -> None:
        """kill -9 of the process that the member lives in."""
        member.host.kill()
        self.own.remove(member.host)
        for each in self.members:
            each.gone = each.gone or each.host is member.host

    def close(self) -> None:
        for host in self.own:
            host.kill()
        for member in self.members:
            if member.host is self.shared and not member.gone:
                member.leave()
        failures = [failure for member in self.members for failure in member.failures]
        assert not failures, failures[0]
