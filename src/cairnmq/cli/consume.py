"""`cairn consume TOPIC`: prints messages as they come, from wherever they are asked for."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, connect, count, flattened, partitions, utf8
from cairnmq.cli.offset_spec import AT, END, FORMS, OffsetSpec, find_bounds, parse_offset, place
from cairnmq.cli.record_format import (
    DEFAULT_FORMAT,
    JSON_HELP,
    TOKENS_HELP,
    Printer,
    compile_format,
    json_line,
)
from cairnmq.cli.terminal import warn, write
from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, decode_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.data import Fetched

COMMIT_EVERY_SECONDS = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the value of each message and a newline, from the end of the topic on."
    parser.add_argument("topic", type=utf8, metavar="TOPIC")
    parser.add_argument("-o", "--offset", type=parse_offset, default=OffsetSpec(END), metavar="OFFSET", help=FORMS)
    parser.add_argument("-n", "--count", type=count, metavar="COUNT", help="stop after so many messages")
    parser.add_argument(
        "-p", "--partition", action="append", type=partitions, metavar="P", help="3 or 0,2,5-7 (default: all)"
    )
    parser.add_argument(
        "-g",
        "--group",
        type=utf8,
        metavar="GROUP",
        help="begin at this group's committed offsets (-o where there are none) and commit what was printed. "
        "This consumer takes all partitions for itself: several with one group do not share the work yet",
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="nothing of transactions that were aborted or are not ended yet"
    )
    parser.add_argument("-e", "--exit-at-end", action="store_true", help="stop at the end of what exists now")
    add_format(parser)
    add_connection(parser)
    parser.set_defaults(run=run)


def add_format(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    shown = (TOKENS_HELP + f" (default {DEFAULT_FORMAT})").replace("%", "%%")
    forms.add_argument("-f", "--format", dest="printer", type=compile_format, metavar="FORMAT", help=shown)
    forms.add_argument("--json", dest="printer", action="store_const", const=json_line, help=JSON_HELP)
    parser.set_defaults(printer=compile_format(DEFAULT_FORMAT))


def run(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        known = [partition.index for partition in client.topic(arguments.topic).partitions]
        wanted = flattened(arguments.partition) or known
        reader = Reader(
            client,
            arguments.topic,
            wanted,
            arguments.offset,
            arguments.group,
            read_committed=arguments.read_committed,
        )
        if arguments.exit_at_end:
            reader.stop_at_end()
        committer = Committer(client, arguments.topic, arguments.group)
        try:
            follow(reader, committer, arguments.printer, arguments.count)
        finally:
            committer.commit()
    return 0


def follow(reader: Reader, committer: Committer, printer: Printer, limit: int | None) -> None:
    """Prints until the limit or the end; what counts as printed has left this process."""
    left = limit
    while reader.active and left != 0:
        for partition, record in reader.read():
            write(printer(reader.topic, partition, record))
            if left is not None:
                left -= 1
                if left == 0:
                    break
        sys.stdout.buffer.flush()
        committer.printed(reader.positions)


class Reader:
    """Positions in the partitions of one topic, moved on by what is read."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partitions: list[int],
        start: OffsetSpec,
        group: str | None = None,
        *,
        read_committed: bool = False,
    ) -> None:
        self.topic = topic
        self._client = client
        self._read_committed = read_committed
        self._bounds = find_bounds(client, topic, partitions, start, read_committed=read_committed)
        self.positions = {index: place(start, bounds) for index, bounds in self._bounds.items()}
        self._ends: dict[int, int] | None = None
        self._unread: set[str] = set()  # what was told already
        if start.kind == AT:
            self._say_what_moved(start.value)
        if group is not None:
            self._continue_group(group)

    def stop_at_end(self) -> None:
        self._ends = {index: bounds.end for index, bounds in self._bounds.items()}

    @property
    def active(self) -> dict[int, int]:
        """Partitions that are still read, and from where."""
        if self._ends is None:
            return self.positions
        return {index: position for index, position in self.positions.items() if position < self._ends[index]}

    def read(self) -> Iterator[tuple[int, Record]]:
        """One round of fetching; each record is handed out once, its position already moved past it."""
        for fetched in self._client.fetch({self.topic: self.active}, read_committed=self._read_committed):
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._move_into_range(fetched.partition)
            elif fetched.error:
                from cairnmq.client.errors import Refused

                raise Refused(fetched.error, f"partition {self.topic}-{fetched.partition}")
            else:
                yield from self._records(fetched)
        for refused in self._client.session.unread:
            if refused.where not in self._unread:
                self._unread.add(refused.where)
                warn(f"{refused}; reading the others, and trying again")

    def _records(self, fetched: Fetched) -> Iterator[tuple[int, Record]]:
        index = fetched.partition
        end = None if self._ends is None else self._ends[index]
        for batch, counts in fetched.judged():
            for record in decode_batch(batch) if counts else ():
                if end is not None and record.offset >= end:
                    self.positions[index] = end
                    return
                if record.offset >= self.positions[index]:
                    self.positions[index] = record.offset + 1
                    yield index, record
            # Markers and records that compaction removed leave no record to move past.
            self.positions[index] = max(self.positions[index], read_header(batch).last_offset + 1)

    def _move_into_range(self, index: int) -> None:
        bounds = find_bounds(self._client, self.topic, [index])[index]
        position = self.positions[index]
        self.positions[index] = bounds.start if position < bounds.start else bounds.end
        warn(f"{self.topic}-{index} no longer holds offset {position}; going on at {self.positions[index]}")

    def _say_what_moved(self, wanted: int) -> None:
        for index, position in self.positions.items():
            if position != wanted:
                bounds = self._bounds[index]
                warn(f"{self.topic}-{index} holds offsets {bounds.start} to {bounds.end}; reading from {position}")

    def _continue_group(self, group: str) -> None:
        places = [TopicPartition(self.topic, index) for index in self.positions]
        for where, offset in self._client.offset_fetch(group, places).items():
            self.positions[where.partition] = offset


class Committer:
    """Commits printed positions for a group now and then, and at the end; does nothing without a group."""

    def __init__(self, client: Client, topic: str, group: str | None) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._printed: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._next = time.monotonic() + COMMIT_EVERY_SECONDS

    def printed(self, positions: dict[int, int]) -> None:
        self._printed = dict(positions)
        if time.monotonic() >= self._next:
            self.commit()

    def commit(self) -> None:
        changed = {i: offset for i, offset in self._printed.items() if self._committed.get(i) != offset}
        if self._group is None or not changed:
            return
        self._client.offset_commit(self._group, {TopicPartition(self._topic, i): o for i, o in changed.items()})
        self._committed.update(changed)
        self._next = time.monotonic() + COMMIT_EVERY_SECONDS
