"""`cairn dump FILE`: any file of ours, or a Kafka segment, as text."""

from __future__ import annotations

import argparse

from cairnmq.cli.terminal import write_line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints a journal segment, a queue log or Kafka segment, an index or a checkpoint as text."
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--records", action="store_true", help="also the records inside each batch")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.storage.dump import dump_file

    for line in dump_file(arguments.file, records=arguments.records):
        write_line(line)
    return 0
