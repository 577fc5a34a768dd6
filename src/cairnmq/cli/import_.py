"""`cairn import KAFKA_LOG_DIR...`: Apache Kafka's log directories into a running broker, offsets kept.

Everything is read and checked before anything is sent. An import that was interrupted goes on where it stopped when the
same command is given again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_json, connect, count, examples, setting
from cairnmq.cli.terminal import Progress, error, note, warn, write_json, write_table

if TYPE_CHECKING:
    from cairnmq.cli.import_plan import Plan, TopicPlan
    from cairnmq.client.blocking import Client
    from cairnmq.client.kept_offsets import Kept
    from cairnmq.storage.api.kafka_import import KafkaLog
    from cairnmq.types import TopicPartition

REQUEST_BYTES = 4 << 20
REQUEST_PARTITIONS = 1000
AGAIN = "what was written is kept; run the same command again to continue"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads log directories of a stopped Apache Kafka (its log.dirs) into a running broker. Offsets, timestamps and "
        "batches are kept byte for byte; only the leader epoch becomes the broker's. Committed offsets are "
        "imported for groups that have none yet."
    )
    examples(
        parser,
        "cairn import /var/lib/kafka/data --dry-run",
        "cairn import /disk1/kafka /disk2/kafka --topic 'orders*' -c retention.ms=-1",
        remarks="Everything is checked before anything is sent. If it is interrupted, run the same command again: it "
        "continues where it stopped. Retention applies to the new topics at once: old records are deleted unless "
        "-c retention.ms=-1 is given.",
    )
    parser.add_argument("directories", nargs="+", metavar="KAFKA_LOG_DIR", help="all log.dirs of one broker")
    parser.add_argument(
        "--topic",
        dest="patterns",
        action="append",
        default=[],
        metavar="PATTERN",
        help="import only topics matching PATTERN (wildcards * and ?); repeatable",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="read and check everything, and show the plan; needs no broker"
    )
    parser.add_argument(
        "-c", "--config", dest="configs", action="append", type=setting, default=[], metavar="k=v",
        help="setting for created topics, overriding Kafka's; repeatable",
    )  # fmt: skip
    parser.add_argument("--no-offsets", action="store_true", help="do not import committed offsets")
    parser.add_argument(
        "--abort-open-transactions", action="store_true", help="drop records of transactions that never completed"
    )
    parser.add_argument(
        "--request-bytes",
        type=count,
        default=REQUEST_BYTES,
        metavar="N",
        help="bytes per request; each is synced to disk (default 4 MiB)",
    )
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.import_plan import make_plan
    from cairnmq.client.errors import ClientError
    from cairnmq.storage.api.kafka_import import open_directory

    directories = [open_directory(root.rstrip("/") or "/") for root in arguments.directories]
    for directory in directories:
        note(f"{directory.root}: node {directory.node_id} of cluster {directory.cluster_id}")
    progress = Progress()
    plan = make_plan(
        directories,
        arguments.patterns,
        abort_open=arguments.abort_open_transactions,
        offsets=not arguments.no_offsets,
        progress=progress.show,
    )
    progress.clear()
    for text in plan.notes:
        warn(text)
    for text in plan.problems:
        error(text)
    if plan.problems:
        note("nothing was imported")
        return 1
    if not plan.topics:
        note("no topics to import")
        return 0
    if arguments.dry_run:
        show(plan, arguments.json)
        note(f"would import {_amount(plan)}; nothing was sent")
        return 0
    with connect(arguments) as client:
        refuse_other_brokers(client, arguments.bootstrap)
        work = Import(client, progress, arguments.request_bytes)
        try:
            make_topics(client, plan.topics, dict(arguments.configs))
            work.carry_out(plan)
        except ClientError as failure:
            error(f"{failure}; {AGAIN}")
            return 1
        finally:
            progress.clear()
    show(plan, arguments.json)
    note(f"imported {_amount(plan)}" if work.sent else "nothing left to import")
    return 0


def refuse_other_brokers(client: Client, bootstrap: str) -> None:
    """Our own request means nothing to another broker, which would just hang up."""
    from cairnmq.client.admin import BROKER_RESOURCE
    from cairnmq.errors import Fault

    cluster = client.describe_cluster()
    for node in cluster.nodes:
        configs = client.describe_configs(BROKER_RESOURCE, str(node.node_id))
        if not any(config.name.startswith("cairn.") for config in configs):
            raise Fault(f"{bootstrap}: not a CairnMQ broker; it cannot write records at given offsets")


def make_topics(client: Client, plans: list[TopicPlan], configs: dict[str, str]) -> None:
    """Those that are missing; one that exists must have as many partitions, or none is made."""
    from cairnmq.client.admin import NewTopic
    from cairnmq.client.errors import Refused
    from cairnmq.errors import Fault

    known = client.metadata(None).topics
    for plan in plans:
        has = len(known[plan.name].partitions) if plan.name in known else plan.partitions
        if has != plan.partitions:
            raise Fault(
                f"topic {plan.name} already exists with {has} partitions; the one to import has {plan.partitions}"
            )
    for plan in plans:
        if plan.name in known:
            continue
        made = client.create_topics([NewTopic(plan.name, plan.partitions, -1, plan.configs | configs)])[plan.name]
        if isinstance(made, Refused):
            raise made
        note(f"created {plan.name} with {plan.partitions} partition{'' if plan.partitions == 1 else 's'}")


class Import:
    """One run. Parts of many partitions share a request, so that small ones share its sync too."""

    def __init__(self, client: Client, progress: Progress, request_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._client = client
        self._progress = progress
        self._parts: dict[TopicPartition, Kept] = {}
        self._bytes = 0
        self.sent = 0

    def carry_out(self, plan: Plan) -> None:
        positions: dict[TopicPartition, int] = {}
        for topic in plan.topics:
            positions |= self._positions(topic)  # refusals come before the first record
        total = sum(log.size for log in plan.logs)
        for log in plan.logs:
            for part in parts(log, positions[log.place], self._request_bytes):
                size = sum(map(len, part.batches))
                if log.place in self._parts or self._bytes + size > self._request_bytes:
                    self._send(total)
                self._parts[log.place] = part
                self._bytes += size
                if len(self._parts) >= REQUEST_PARTITIONS:
                    self._send(total)
        self._send(total)
        for log in plan.logs:
            if log.start > log.opens_at:
                self._trim(log)
        self._commit(plan)

    def _positions(self, topic: TopicPlan) -> dict[TopicPartition, int]:
        from cairnmq.client.records import EARLIEST, LATEST

        numbers = [log.place.partition for log in topic.logs]
        starts = self._client.list_offsets(topic.name, numbers, EARLIEST)
        ends = self._client.list_offsets(topic.name, numbers, LATEST)
        return {
            log.place: self._position(log, starts[log.place.partition].offset, ends[log.place.partition].offset)
            for log in topic.logs
        }

    def _position(self, log: KafkaLog, start: int, end: int) -> int:
        last = None
        if end > start:
            place = {log.place.topic: {log.place.partition: end - 1}}
            (found,) = self._client.fetch(place, partition_max_bytes=1)
            last = found.batches[0] if found.batches else None
        position = log.goes_on_at(start, end, last)
        if end and position == log.end:
            note(f"{log.place} was imported before")
        elif end:
            note(f"{log.place} continues at offset {position}")
        return position

    def _send(self, total: int) -> None:
        if self._parts:
            self._client.keep_offsets(self._parts)
            self.sent += self._bytes
            self._progress.show(f"{self.sent * 100 // max(total, 1)} %  {self.sent >> 20} MiB")
        self._parts, self._bytes = {}, 0

    def _trim(self, log: KafkaLog) -> None:
        """Batches come whole, and Kafka's log start may lie inside the first."""
        from cairnmq.client.errors import Refused
        from cairnmq.errors import ErrorCode

        try:
            self._client.delete_records(log.place.topic, {log.place.partition: log.start})
        except Refused as refused:
            if refused.code != ErrorCode.POLICY_VIOLATION:
                raise
            warn(
                f"{log.place}: its cleanup.policy has no delete, so what is left of offsets {log.opens_at} to "
                f"{log.start - 1}, before Kafka's log start, stays readable"
            )

    def _commit(self, plan: Plan) -> None:
        """What a group has committed here already stays: it may have read on since an earlier run."""
        done = 0
        for group, offsets in plan.committed.items():
            known = self._client.offset_fetch(group, list(offsets))
            new = {place: offset for place, offset in offsets.items() if place not in known}
            if new:
                self._client.offset_commit(group, new)
                done += len(new)
        if done:
            note(f"committed {done} offsets of {len(plan.committed)} groups")


def parts(log: KafkaLog, position: int, bytes_max: int) -> Iterator[Kept]:
    """The log from `position` on in parts of a request's size; the last one reaches up to its end."""
    from cairnmq.client.kept_offsets import Kept

    batches: list[bytes] = []
    size = 0
    start = end = position
    for batch in log.read(position):
        if batches and size + batch.header.size > bytes_max:
            yield Kept(start, end, batches)
            batches, size, start = [], 0, end
        batches.append(bytes(batch.data))  # the file's window moves on
        size += batch.header.size
        end = batch.header.last_offset + 1
    if position < log.end or log.opens_at == log.end > 0:
        yield Kept(start, log.end, batches)


def show(plan: Plan, as_json: bool) -> None:
    names = ("topic", "partition", "start", "end", "batches", "records", "bytes")
    rows = [
        (log.place.topic, log.place.partition, log.start, log.end, log.batches, log.records, log.size)
        for log in plan.logs
    ]
    if as_json:
        write_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        write_table([name.upper() for name in names], rows)


def _amount(plan: Plan) -> str:
    logs = plan.logs
    return (
        f"{sum(log.records for log in logs)} records in {len(logs)} partitions of {len(plan.topics)} topics, "
        f"{sum(log.size for log in logs) / 2**20:.1f} MiB"
    )
