"""`cairn dump FILE`: any file of ours, or of Apache Kafka's, as text."""

from __future__ import annotations

import argparse

from cairnmq.cli.arguments import examples
from cairnmq.cli.terminal import write_line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints as text: a journal segment (.jnl), a queue log or Kafka segment (.log), its indexes, a pack (.pack), "
        "queue.json, a checkpoint (.ckpt, .previous), the metadata (meta.db), or any of the small files that Kafka "
        "keeps beside its segments. Damaged bytes are shown with their position."
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--records", action="store_true", help="print the records of each batch too")
    examples(
        parser,
        "cairn dump cairn-data/journal/0/00000000000000000000.jnl",
        "cairn dump cairn-data/queues/orders-0/00000000000000000000.log --records",
        "cairn dump cairn-data/meta.db",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.metadata.inspection import dump_metadata, is_metadata
    from cairnmq.storage.api.dump import dump_file

    path = arguments.file
    for line in dump_metadata(path) if is_metadata(path) else dump_file(path, records=arguments.records):
        write_line(line)
    return 0
