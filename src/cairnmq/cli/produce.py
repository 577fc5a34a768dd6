"""`cairn produce TOPIC`: lines become messages, sent as soon as they are read and in batches when there are many."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_later, completes, connect, examples, natural, utf8
from cairnmq.cli.message_lines import JSON_HELP, BadLine, Parse, json_parser, text_parser
from cairnmq.cli.record_format import unescape
from cairnmq.cli.terminal import Progress, UsageError, note
from cairnmq.client.errors import ClientError, Disconnected, GaveUp
from cairnmq.codec.compression import CODEC_NAMES
from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.records import Headers, Record, build_batch
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

READ_BYTES = 1024 * 1024
BATCH_BYTES_MAX = 900_000  # below the broker's default message.max.bytes, with room for the framing
RECORD_BYTES_EXTRA = 24  # upper bound of a record's own framing without headers
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Sends each line of stdin (or of a file) as one message."
    examples(
        parser,
        "echo hello | cairn produce greetings",
        "cairn produce orders -K : -f orders.txt -z zstd",
        'echo \'{"key": "42", "value": {"total": 7}}\' | cairn produce orders --json',
        "echo 42: | cairn produce orders -K : --tombstone",
        "cairn produce notes -D '\\n\\n' -f notes.txt",
        remarks="Messages with the same key go to the same partition, as with Kafka's Java client. Without a key, "
        "partitions take turns.",
    )
    completes(
        "topics",
        parser.add_argument(
            "topic", type=utf8, metavar="TOPIC", help="topic; created if it does not exist and the broker allows it"
        ),
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="read this file instead of stdin")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.add_argument(
        "-D",
        "--delimiter",
        type=separator,
        default=b"\n",
        metavar="DELIM",
        help=r"message delimiter (default \n; \0 and \xHH work too)",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("-k", "--key", metavar="KEY", help="the key of every message")
    keys.add_argument(
        "-K",
        "--key-separator",
        type=separator,
        metavar="SEP",
        help=r"split each line at the first SEP into key and value (\t works)",
    )
    parser.add_argument(
        "-Z",
        "--tombstone",
        action="store_true",
        help="send an empty value as null: on a compacted topic this deletes the key",
    )
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        action="append",
        type=header,
        default=[],
        metavar="k:v",
        help="header of every message; repeatable",
    )
    parser.add_argument(
        "-p", "--partition", type=natural, metavar="PARTITION", help="send all messages to this partition"
    )
    parser.add_argument(
        "-z", "--compression", choices=CODEC_NAMES, default="none", metavar="CODEC", help=", ".join(CODEC_NAMES)
    )
    parser.add_argument("--acks", choices=ACKS, default="all", metavar="ACKS", help="0, 1 or all (default)")
    add_later(parser, "--tag", "--delay", "--at")
    add_connection(parser)
    parser.set_defaults(run=run, surplus="; messages are read from stdin, as in `echo hello | cairn produce greetings`")


def separator(text: str) -> bytes:
    if not text:
        raise argparse.ArgumentTypeError("a separator cannot be empty")
    return unescape(text)


def header(text: str) -> tuple[str, bytes]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:VALUE")
    return name, value.encode("utf-8", "surrogateescape")


def run(arguments: argparse.Namespace) -> int:
    if arguments.json and arguments.key_separator is not None:
        raise UsageError("--json lines have keys of their own; leave out -K")
    source = open(arguments.file, "rb") if arguments.file not in (None, "-") else sys.stdin.buffer
    size = os.fstat(source.fileno()).st_size if arguments.file not in (None, "-") else 0
    progress = Progress()
    with source, connect(arguments) as client:
        sender = Sender(client, arguments)
        if source.isatty() and sys.stderr.isatty():
            note(f"one message to {arguments.topic} for each line; Ctrl-D ends, Ctrl-C stops")
        try:
            for lines in read_lines(source.fileno(), arguments.delimiter):
                sender.send(lines)
                if size:
                    progress.show(f"{sender.bytes * 100 // size} %  {sender.count} messages")
        finally:
            progress.clear()
    note(f"{sender.count} message{'' if sender.count == 1 else 's'} to {arguments.topic}{sender.last_place}")
    return 0


def read_lines(descriptor: int, delimiter: bytes = b"\n") -> Iterator[list[bytes]]:
    """Lines without their ends, as many at a time as one read gives: typed lines go out at once, a file in bulk."""
    rest = b""
    while data := os.read(descriptor, READ_BYTES):
        *lines, rest = (rest + data).split(delimiter)
        if lines:
            yield [line.removesuffix(b"\r") for line in lines] if delimiter == b"\n" else lines
    if rest and (delimiter == b"\n" or rest not in (b"\n", b"\r\n")):  # a text file's own last line end is no message
        yield [rest]


def cut(records: Iterable[Record], bytes_max: int) -> Iterator[list[Record]]:
    """Records in lists that fit one batch; a record that is larger than that stands alone and the broker judges it."""
    part: list[Record] = []
    used = 0
    for record in records:
        size = len(record.key or b"") + len(record.value or b"") + RECORD_BYTES_EXTRA
        size += sum(2 * RECORD_BYTES_EXTRA + len(name) * 4 + len(value or b"") for name, value in record.headers)
        if part and used + size > bytes_max:
            yield part
            part, used = [], 0
        part.append(record)
        used += size
    if part:
        yield part


def _parser(arguments: argparse.Namespace) -> Parse:
    key = None if arguments.key is None else arguments.key.encode("utf-8", "surrogateescape")
    headers: Headers = tuple(arguments.headers)
    if arguments.json:
        return json_parser(key, headers, tombstones=arguments.tombstone)
    return text_parser(key, arguments.key_separator, headers, tombstones=arguments.tombstone)


class Sender:
    """Turns lines into batches and sends them; with acks=all, so that a retry cannot store a message twice."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self.count = 0
        self.bytes = 0
        self.last_place = ""
        self._client = client
        self._topic: str = arguments.topic
        self._acks = ACKS[arguments.acks]
        self._codec = CODEC_NAMES.index(arguments.compression)
        self._parse = _parser(arguments)
        self._lines = 0
        topic = client.topic(self._topic, create=True)
        if arguments.partition is not None:
            topic.partition(arguments.partition)
        self._fixed: int | None = arguments.partition
        self._partitions = len(topic.partitions)
        self._turn = random.randrange(self._partitions)
        self._producer = client.init_producer_id() if self._acks == -1 else None
        self._sequences: dict[int, int] = {}

    def send(self, lines: list[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        by_partition: dict[int, list[Record]] = {}
        wrong: BadLine | None = None
        for line in lines:
            self._lines += 1
            try:
                record = self._parse(line, now_ms)
            except BadLine as found:
                wrong = found
                break
            by_partition.setdefault(self._partition_for(record.key), []).append(record)
            self.bytes += len(line) + 1
        self._turn = (self._turn + 1) % self._partitions
        parts = {partition: list(cut(records, BATCH_BYTES_MAX)) for partition, records in by_partition.items()}
        while parts:
            self._send_round({partition: waiting.pop(0) for partition, waiting in parts.items()})
            parts = {partition: waiting for partition, waiting in parts.items() if waiting}
        if wrong is not None:
            raise ClientError(f"line {self._lines}: {wrong}; {self._sent_before()}")

    def _sent_before(self) -> str:
        if self.count == 0:
            return "nothing was sent"
        return "the message before it was sent" if self.count == 1 else f"the {self.count} messages before it were sent"

    def _partition_for(self, key: bytes | None) -> int:
        if self._fixed is not None:
            return self._fixed
        return self._turn if key is None else partition_for(key, self._partitions)

    def _send_round(self, parts: dict[int, list[Record]]) -> None:
        batches = {TopicPartition(self._topic, p): self._batch(p, records) for p, records in parts.items()}
        try:
            done = self._client.produce_all(batches, self._acks)
        except (Disconnected, GaveUp) as failure:
            # Requests may still stand in line at the broker, for one that is at the backlog's cap.
            unknown = sum(map(len, parts.values()))
            done_with = "stored" if self._acks else "sent"
            raise ClientError(f"{failure}; {self.count} messages are {done_with}, {unknown} more may be") from None
        for partition, records in parts.items():
            self.count += len(records)
            produced = done.get(TopicPartition(self._topic, partition))
            if produced is not None:
                last = produced.base_offset + len(records) - 1
                self.last_place = f" (last: partition {partition}, offset {last})"

    def _batch(self, partition: int, records: list[Record]) -> bytes:
        if self._producer is None:
            return build_batch(records, codec=self._codec)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + len(records)) & 0x7FFFFFFF
        return build_batch(
            records,
            codec=self._codec,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
        )
