"""`cairn verify DIR...`: checks every invariant offline, and compares replicas; a line for each problem."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cairnmq.cli.arguments import examples
from cairnmq.cli.terminal import UsageError, note, write_line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Checks data directories while no broker runs on them. Prints a line for each problem, and then exits with 1. "
        "Several directories of one cluster are also compared: replicas must hold the same records."
    )
    parser.add_argument("dirs", nargs="+", metavar="DIR", help="data directory; several are also compared")
    parser.add_argument(
        "--journal-dir", metavar="J", help="where the journals are, if not in DIR/journal (only with a single DIR)"
    )
    parser.add_argument(
        "--metadata", metavar="sqlite:PATH", help="the metadata that brokers share, as given to `cairn serve`"
    )
    examples(
        parser,
        "cairn verify cairn-data",
        "cairn verify /data/cairn --journal-dir /journals/cairn",
        "cairn verify data-1 data-2 data-3 --metadata sqlite:cluster.db",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.metadata.inspection import read_cluster, read_counters, read_queues
    from cairnmq.storage.api.verify import verify

    if len(arguments.dirs) > 1 and arguments.journal_dir is not None:
        raise UsageError("--journal-dir holds the journals of one data directory: check them one by one")
    metadata = shared_file(arguments.metadata)
    _all_different(arguments.dirs)
    findings = 0
    for line in verify(arguments.dirs, arguments.journal_dir, read_queues, read_counters, read_cluster, metadata):
        if line.startswith("note: "):  # what the next start repairs by itself
            note(line)
        else:
            findings += 1
            try:
                write_line(line)
            except BrokenPipeError:  # who reads has seen enough, but not that all is well
                return 1
    note(f"{findings} problem{'' if findings == 1 else 's'} found")
    return 1 if findings else 0


def _all_different(directories: list[str]) -> None:
    """A replica is never wrong when it is compared with itself."""
    seen: dict[str, str] = {}
    for directory in directories:
        path = os.path.realpath(directory)
        if path in seen:
            raise UsageError(f"{seen[path]} and {directory} are the same directory: give each replica once")
        seen[path] = directory


def shared_file(metadata: str | None) -> str | None:
    """The path in `sqlite:PATH`."""
    if metadata is None:
        return None
    kind, _, path = metadata.partition(":")
    if kind != "sqlite" or not path:
        raise UsageError(f"--metadata {metadata}: expected sqlite:PATH")
    if not Path(path).is_file():
        raise UsageError(f"--metadata {metadata}: there is no such file")
    return path
