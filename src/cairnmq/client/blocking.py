"""The client for plain blocking code (commands, Spark): carries session.py's plans out over sockets.

Not for use by several threads at once: open one Client per thread.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from cairnmq import __version__
from cairnmq.client import admin, cluster, groups, kept_offsets, membership, offsets, records, topic_sizes, transactions
from cairnmq.client.connection import Connection
from cairnmq.client.errors import ClientError, Disconnected, GaveUp, Refused, Unreachable
from cairnmq.client.session import Ask, Cluster, Node, Pause, Plan, Session, Topic
from cairnmq.os_errors import reason_of
from cairnmq.types import Buffer, TopicPartition
from cairnmq.wire.messages import Message

T = TypeVar("T")

DEFAULT_PORT = 9092
CONNECT_SECONDS_MAX = 10.0
_NO_NODE = -1


class _Link:
    """One connected socket and the protocol state that belongs to it."""

    def __init__(self, host: str, port: int, client_id: str, deadline: float, advice: str, silent_advice: str) -> None:
        """`advice`: for an address that cannot be reached; `silent_advice`: for one that does not respond."""
        self.address = f"{host}:{port}"
        try:
            seconds = min(CONNECT_SECONDS_MAX, max(0.1, deadline - time.monotonic()))
            self._socket = socket.create_connection((host, port), timeout=seconds)
        except OSError as error:
            raise Unreachable(f"cannot reach {self.address}: {reason_of(error)}; {advice}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = Connection(client_id, self.address, __version__)
        self.broken = False
        try:
            self._greet(deadline)
        except Disconnected as lost:
            # nothing was sent that would do anything
            raise Unreachable(f"{lost}; {silent_advice}" if silent_advice else str(lost)) from None
        except BaseException:
            self.close()
            raise

    def send(self, ask: Ask, deadline: float) -> int:
        number, frame = self._state.request(ask.request, min_version=ask.min_version, answered=ask.answered)
        self._write(frame, deadline)
        return number

    def receive(self, number: int, deadline: float) -> Message:
        """The answer to the oldest request without one: brokers answer in the order they were asked."""
        got, message = self._read(deadline)
        assert got == number, f"{self.address} responded to request {got} before request {number}"
        return message

    def close(self) -> None:
        self.broken = True
        self._socket.close()

    @property
    def is_owed(self) -> bool:
        """Something was asked here that has no response yet."""
        return bool(self._state.pending)

    @property
    def usable(self) -> bool:
        """A broker that says something while it owes nothing has hung up, as it does with idle connections: what was
        sent here would be lost."""
        if not self.broken and not self.is_owed:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if poll.poll(0):
                self.close()
        return not self.broken

    def _greet(self, deadline: float) -> None:
        hello: list[Buffer] | None = self._state.hello()
        while hello is not None:
            self._write(hello, deadline)
            _, answer = self._read(deadline)
            hello = self._state.greeted(answer)

    def _write(self, frame: list[Buffer], deadline: float) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(b"".join(frame))
        except OSError as error:
            self.close()
            raise Disconnected(f"lost {self.address} while sending: {reason_of(error)}") from None
        except BaseException:  # Ctrl-C in the middle of a frame: what follows on this connection would be nonsense
            self.close()
            raise

    def _read(self, deadline: float) -> tuple[int, Message]:
        try:
            while True:
                self._socket.settimeout(_left(deadline))
                count = self._socket.recv_into(self._state.space())
                if not count:
                    raise ConnectionError("the broker closed the connection")
                reply = self._state.received(count)
                if reply is not None:
                    return reply.correlation_id, reply.message
        except OSError as error:
            self.close()
            raise Disconnected(f"lost {self.address} while waiting for its response: {reason_of(error)}") from None
        except BaseException:
            self.close()
            raise


class Client:
    """A connected client; every method either gives a result or raises a ClientError with a sentence.

    `timeout` is for one answer, `patience` for a whole call: what may be asked twice is asked again meanwhile when the
    broker is away.
    """

    def __init__(self, bootstrap: Sequence[tuple[str, int]], client_id: str, timeout: float, patience: float) -> None:
        self.session = Session()
        self.timeout = timeout
        self.patience = patience
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._links: dict[int, _Link] = {}
        self._silent: str | None = None  # the address that was lost last: others are tried before it

    @classmethod
    def connect(
        cls,
        bootstrap: str = "127.0.0.1:9092",
        client_id: str = "cairn",
        timeout: float = 30.0,
        patience: float | None = None,
        *,
        wait: bool = False,
    ) -> Client:
        """Connects to the first of `HOST:PORT,HOST:PORT` that answers: at once, or with `wait` within its patience."""
        client = cls(parse_bootstrap(bootstrap), client_id, timeout, timeout if patience is None else patience)
        if wait:
            client.metadata([])
        else:
            client.run(client.session.metadata([]))
        return client

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def metadata(self, topics: Iterable[str] | None = None) -> Cluster:
        wanted = None if topics is None else list(topics)
        return self.run(self.session.retrying(lambda: self.session.metadata(wanted)))

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """The topic; with `create` the broker may make it on the spot (auto.create.topics.enable)."""
        return self.run(self.session.retrying(lambda: self.session.topic(name, create=create)))

    def create_topics(
        self, topics: Sequence[admin.NewTopic], *, twice_is_harmless: bool = False
    ) -> dict[str, admin.Created | Refused]:
        plan = admin.create_topics(self.session, topics, self._timeout_ms, twice_is_harmless=twice_is_harmless)
        return self.run(plan)

    def delete_topics(self, names: Sequence[str]) -> dict[str, Refused | None]:
        return self.run(admin.delete_topics(self.session, names, self._timeout_ms))

    def create_partitions(self, topic: str, count: int) -> None:
        self.run(admin.create_partitions(self.session, topic, count, self._timeout_ms))

    def describe_configs(self, resource: int, name: str, keys: Iterable[str] | None = None) -> list[admin.Config]:
        return self.run(admin.describe_configs(self.session, resource, name, keys))

    def incremental_alter_configs(self, resource: int, name: str, changes: Sequence[admin.Alteration]) -> None:
        self.run(admin.incremental_alter_configs(self.session, resource, name, changes))

    def describe_cluster(self) -> admin.ClusterDescription:
        return self.run(admin.describe_cluster(self.session))

    def api_versions(self, node: int) -> dict[str, tuple[int, int]]:
        """Name of an API -> lowest and highest version that a broker serves."""
        return self.run(cluster.api_versions(self.session, node))

    def log_dirs(self, node: int, *, contents: bool = False) -> list[cluster.LogDir]:
        """The directories of a broker: room and errors, and the size of each topic in them if that is wanted."""
        return self.run(cluster.log_dirs(self.session, node, contents=contents))

    def topic_sizes(self) -> list[topic_sizes.TopicSize]:
        """Every topic with its messages and bytes, as far as the brokers tell."""
        return self.run(topic_sizes.topic_sizes(self.session))

    def list_offsets(
        self, topic: str, partitions: Iterable[int], timestamp: int, *, read_committed: bool = False
    ) -> dict[int, records.Listed]:
        plan = records.list_offsets(self.session, topic, partitions, timestamp, read_committed=read_committed)
        return self.run(plan)

    def list_offsets_of(
        self, topics: Mapping[str, Iterable[int]], timestamp: int, *, read_committed: bool = False
    ) -> dict[str, dict[int, records.Listed]]:
        return self.run(records.list_offsets_of(self.session, topics, timestamp, read_committed=read_committed))

    def init_producer_id(self) -> records.ProducerId:
        return self.run(records.init_producer_id(self.session))

    def produce(self, topic: str, partition: int, batch: Buffer, acks: int = -1) -> records.Produced | None:
        """Appends one batch; None with acks=0."""
        place = TopicPartition(topic, partition)
        return self.produce_all({place: batch}, acks).get(place)

    def produce_all(
        self, batches: Mapping[TopicPartition, Buffer], acks: int = -1, transactional_id: str | None = None
    ) -> dict[TopicPartition, records.Produced]:
        """Appends one batch to each of several partitions at once."""
        plan = records.produce(self.session, batches, acks, self._timeout_ms, transactional_id=transactional_id)
        return self.run(plan)

    def begin_transactions(self, transactional_id: str, timeout_ms: int) -> transactions.Transaction:
        """Takes over a transactional id: whoever used it before is fenced, and what was left open is aborted."""
        return self.run(transactions.begin(self.session, transactional_id, timeout_ms))

    def end_transaction(self, transaction: transactions.Transaction, *, commit: bool) -> transactions.Transaction:
        """Gives the next one of the same producer; it begins with its first batch."""
        return self.run(transactions.end(self.session, transaction, commit=commit))

    def list_transactions(self, states: Sequence[str] = ()) -> list[transactions.ListedTransaction]:
        return self.run(transactions.list_all(self.session, states))

    def describe_transaction(self, transactional_id: str) -> transactions.TransactionDescription:
        return self.run(transactions.describe(self.session, transactional_id))

    def open_transactions(self, prefix: str) -> list[transactions.OpenTransaction]:
        """Of transactional ids that begin so."""
        return self.run(transactions.list_open(self.session, prefix))

    def fetch(
        self,
        positions: Mapping[str, Mapping[int, int]],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        read_committed: bool = False,
    ) -> list[records.Fetched]:
        """Reads batches from `{topic: {partition: offset}}`; with `read_committed` only those that are decided."""
        plan = records.fetch(
            self.session,
            positions,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            read_committed=read_committed,
        )
        return self.run(plan)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Deletes what lies before an offset in each partition; gives the new log starts."""
        return self.run(records.delete_records(self.session, topic, before, self._timeout_ms))

    def keep_offsets(self, parts: Mapping[TopicPartition, kept_offsets.Kept]) -> dict[TopicPartition, int]:
        """Writes batches with the offsets they have (only to a CairnMQ); gives the new ends."""
        return self.run(kept_offsets.keep_offsets(self.session, parts))

    def find_coordinator(self, group: str) -> Node:
        node = self.run(self.session.retrying(lambda: self.session.coordinator(group)))
        return self.session.nodes[node]

    def offset_commit(
        self, group: str, committed: Mapping[TopicPartition, int], member: membership.Member | None = None
    ) -> None:
        """As a member of the group, or from outside."""
        who = ("", -1) if member is None else (member.member_id, member.epoch)
        self.run(offsets.commit(self.session, group, committed, *who))

    def offset_delete(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Refused | None]:
        return self.run(offsets.delete(self.session, group, partitions))

    def heartbeat(self, member: membership.Member) -> None:
        """Joins the group with the first one."""
        self.run(membership.heartbeat(self.session, member, time.monotonic()))

    def leave_group(self, member: membership.Member) -> None:
        self.run(membership.leave(self.session, member))

    def named_partitions(self, partitions: Iterable[tuple[bytes, int]]) -> list[TopicPartition]:
        """Of topic ids, as a member of a group is assigned them."""
        return self.run(membership.named(self.session, partitions))

    def offset_fetch(self, group: str, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The committed offsets of some partitions, or all that the group has."""
        return self.run(offsets.fetch(self.session, group, partitions))

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[groups.ListedGroup]:
        return self.run(groups.list_groups(self.session, states, types))

    def describe_group(self, group: str) -> groups.GroupDescription:
        return self.run(groups.describe_group(self.session, group))

    def delete_groups(self, names: Sequence[str]) -> dict[str, Refused | None]:
        return self.run(groups.delete_groups(self.session, names))

    @property
    def _timeout_ms(self) -> int:
        return int(self.timeout * 1000)

    def run(self, plan: Plan[T]) -> T:
        """Carries out any plan of `session`."""
        deadline = time.monotonic() + self.patience
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    if time.monotonic() + step.seconds > deadline:
                        raise GaveUp(f"{step.reason}; gave up after {self.patience:g} s")
                    time.sleep(step.seconds)
                    step = plan.send(())
                else:
                    step = plan.send(self._exchange(step, min(deadline, time.monotonic() + self.timeout)))
        except StopIteration as done:
            result: T = done.value
            return result
        except BaseException:  # Ctrl-C: what other brokers still respond would be taken for later responses
            for link in self._links.values():
                if link.is_owed:
                    link.close()
            raise

    def _exchange(self, asks: Sequence[Ask], deadline: float) -> list[object]:
        """Sends every request before it waits for any answer. A failure is put where the answer would be."""
        sent: list[tuple[_Link, int] | ClientError] = []
        for ask in asks:
            try:
                link = self._link(ask.node, deadline)
                sent.append((link, link.send(ask, deadline)))
            except ClientError as error:
                sent.append(error)
        results: list[object] = []
        for ask, underway in zip(asks, sent, strict=True):
            if isinstance(underway, ClientError):
                results.append(underway)
            elif not ask.answered:
                results.append(None)
            else:
                link, number = underway
                try:
                    results.append(link.receive(number, _until(ask, deadline, len(self.session.nodes))))
                except ClientError as error:
                    link.close()
                    self._silent = link.address
                    results.append(error)
        return results

    def _link(self, node: int | None, deadline: float) -> _Link:
        self._links = {known: link for known, link in self._links.items() if link.usable}
        if node is None:
            return next(iter(self._links.values()), None) or self._any_link(deadline)
        if node in self._links:
            return self._links[node]
        place = self.session.nodes.get(node)
        if place is None:  # it was, when this request was planned
            raise Unreachable(f"node {node} is no longer part of the cluster")
        first = self._links.get(_NO_NODE)
        if first is not None and first.address == f"{place.host}:{place.port}":
            self._links[node] = self._links.pop(_NO_NODE)
            return first
        advice = f"node {node} advertises this address; if it is not reachable from here, start it with --advertise"
        self._links[node] = _Link(place.host, place.port, self._client_id, deadline, advice, "")
        return self._links[node]

    def _any_link(self, deadline: float) -> _Link:
        failures: list[Unreachable] = []
        advice = "is `cairn serve` running? For another address use -b HOST:PORT"
        addresses = _addresses(self._bootstrap, self.session.nodes.values(), self._silent)
        for tried, (host, port) in enumerate(addresses):
            now = time.monotonic()
            share = (deadline - now) / (len(addresses) - tried)  # of one that accepts and is silent
            try:
                link = _Link(host, port, self._client_id, now + share, advice, advice)
            except Unreachable as error:
                failures.append(error)
                continue
            self._links[_NO_NODE] = link
            return link
        if len(failures) == 1:
            raise failures[0]
        raise Unreachable("; ".join(str(failure).removesuffix(f"; {advice}") for failure in failures) + f"; {advice}")


def _addresses(
    bootstrap: Iterable[tuple[str, int]], nodes: Iterable[Node], silent: str | None
) -> list[tuple[str, int]]:
    """Where any broker may be; the one that was silent comes last."""
    every = dict.fromkeys([*bootstrap, *((node.host, node.port) for node in nodes)])
    return sorted(every, key=lambda place: f"{place[0]}:{place[1]}" == silent)


def _until(ask: Ask, deadline: float, brokers: int) -> float:
    """How long the response is waited for."""
    if not ask.brief or ask.node is not None or brokers < 2:
        return deadline + ask.wait_seconds
    now = time.monotonic()
    return now + (deadline - now) / brokers


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`HOST[:PORT],...`; ClientError with a sentence otherwise. Without a port it is Kafka's usual one."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "://" in part:
            raise ClientError(f"bootstrap address {part!r} is a URL; use HOST:PORT, the port for Kafka clients")
        if part.count(":") > 1 and not part.startswith("["):
            raise ClientError(f"bootstrap address {part!r} is not HOST:PORT; write an IPv6 address as [::1]:9092")
        has_port = ":" in part and not part.endswith("]")
        host, _, port = (part if has_port else f"{part}:{DEFAULT_PORT}").rpartition(":")
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise ClientError(f"bootstrap address {part!r} is not HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientError("the bootstrap address is empty; use -b HOST:PORT")
    return addresses


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
