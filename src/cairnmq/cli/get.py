"""`cairn get TOPIC PARTITION OFFSET`: one message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_later, completes, connect, examples, natural, utf8
from cairnmq.cli.consume import add_format
from cairnmq.cli.offset_spec import find_bounds
from cairnmq.cli.terminal import error, write
from cairnmq.codec.records import Record, decode_batch

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the value of one message and a newline."
    completes("topics", parser.add_argument("topic", type=utf8, metavar="TOPIC"))
    parser.add_argument("partition", type=natural, metavar="PARTITION")
    parser.add_argument("offset", type=natural, metavar="OFFSET")
    add_format(parser)
    add_later(parser, "--key")
    add_connection(parser)
    examples(parser, "cairn get orders 0 42", "cairn get orders 0 42 --json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    topic, partition, offset = arguments.topic, arguments.partition, arguments.offset
    with connect(arguments) as client:
        bounds = find_bounds(client, topic, [partition])[partition]
        if not bounds.start <= offset < bounds.end:
            held = f"offsets {bounds.start} to {bounds.end - 1}" if bounds.end > bounds.start else "no messages"
            error(f"{topic}-{partition} has no offset {offset}: it holds {held}")
            return 1
        record = find(client, topic, partition, offset)
    if record is None:
        error(f"{topic}-{partition} has no message at offset {offset}: it was a marker, or it was compacted away")
        return 1
    write(arguments.printer(topic, partition, record))
    return 0


def find(client: Client, topic: str, partition: int, offset: int) -> Record | None:
    from cairnmq.client.errors import Refused

    for fetched in client.fetch({topic: {partition: offset}}, max_wait_ms=0, partition_max_bytes=1):
        if fetched.error:
            raise Refused(fetched.error, f"partition {topic}-{partition}")
        for batch in fetched.batches:
            for record in decode_batch(batch):
                if record.offset == offset and not record.control:
                    return record
    return None
