"""`cairn topic`: create, list, describe, delete, alter, add-partitions, trim."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import (
    add_connection,
    add_json,
    connect,
    flattened,
    partition_count,
    partitions,
    replica_count,
    setting,
    utf8,
)
from cairnmq.cli.offset_spec import FORMS, find_bounds, parse_offset, place
from cairnmq.cli.terminal import UsageError, error, note, report_deleted, write_json, write_line, write_table

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", type=utf8, metavar="NAME")
    create.add_argument(
        "-p", "--partitions", type=partition_count, default=-1, metavar="N", help="default: the broker's num.partitions"
    )
    create.add_argument(
        "-r",
        "--replicas",
        type=replica_count,
        default=-1,
        metavar="N",
        help="default: the broker's default.replication.factor",
    )
    create.add_argument(
        "-c", "--config", dest="configs", action="append", type=setting, default=[], metavar="k=v", help="repeatable"
    )
    create.add_argument("--if-not-exists", action="store_true", help="an existing topic is no failure")
    create.set_defaults(run=run_create)

    listing = actions.add_parser("list", help="list topics")
    listing.add_argument("--internal", action="store_true", help="internal topics too")
    add_json(listing)
    listing.set_defaults(run=run_list)

    describe = actions.add_parser("describe", help="partitions, offsets and configs of topics")
    describe.add_argument("names", nargs="+", type=utf8, metavar="NAME")
    describe.add_argument(
        "-a", "--all", action="store_true", help="also the configs that are not set on the topic itself"
    )
    add_json(describe)
    describe.set_defaults(run=run_describe)

    delete = actions.add_parser("delete", help="delete topics with all their messages")
    delete.add_argument("names", nargs="+", type=utf8, metavar="NAME")
    delete.set_defaults(run=run_delete)

    alter = actions.add_parser("alter", help="change configs")
    alter.add_argument("names", nargs="+", type=utf8, metavar="NAME")
    alter.add_argument(
        "-c",
        "--config",
        dest="configs",
        action="append",
        type=setting,
        default=[],
        metavar="k=v",
        help="set; repeatable",
    )
    alter.add_argument(
        "-d",
        "--delete-config",
        dest="removed",
        action="append",
        type=utf8,
        default=[],
        metavar="k",
        help="back to the default",
    )
    alter.set_defaults(run=run_alter)

    add = actions.add_parser("add-partitions", help="add partitions to a topic")
    add.add_argument("name", type=utf8, metavar="NAME")
    add.add_argument("-n", "--num", type=partition_count, required=True, metavar="N", help="how many to add")
    add.set_defaults(run=run_add_partitions)

    trim = actions.add_parser("trim", help="delete messages from the start of partitions")
    trim.add_argument("name", type=utf8, metavar="NAME")
    trim.add_argument(
        "-o", "--offset", type=parse_offset, required=True, metavar="OFFSET", help=f"first one to keep: {FORMS}"
    )
    trim.add_argument(
        "-p", "--partition", action="append", type=partitions, metavar="P", help="3 or 0,2,5-7 (default: all)"
    )
    add_json(trim)
    trim.set_defaults(run=run_trim)

    for action in (create, listing, describe, delete, alter, add, trim):
        add_connection(action)
    shrink = actions.add_parser("shrink")
    shrink.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    shrink.set_defaults(run=run_shrink)


def run_create(arguments: argparse.Namespace) -> int:
    from cairnmq.client.admin import NewTopic
    from cairnmq.client.errors import Refused
    from cairnmq.errors import ErrorCode

    wanted = [NewTopic(n, arguments.partitions, arguments.replicas, dict(arguments.configs)) for n in arguments.names]
    failed = False
    with connect(arguments) as client:
        for name, made in client.create_topics(wanted).items():
            if not isinstance(made, Refused):
                parts = (
                    f" with {made.partitions} partition{'' if made.partitions == 1 else 's'}"
                    if made.partitions > 0
                    else ""
                )
                note(f"created {name}{parts}")
            elif arguments.if_not_exists and made.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"{name} exists already")
            else:
                error(str(made))
                failed = True
    return 1 if failed else 0


def run_list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        topics = sorted(client.metadata(None).topics.values(), key=lambda topic: topic.name)
    shown = [topic for topic in topics if arguments.internal or not topic.internal]
    rows = [(t.name, len(t.partitions), len(t.partitions[0].replicas) if t.partitions else 0) for t in shown]
    if arguments.json:
        write_json([{"name": name, "partitions": parts, "replicas": replicas} for name, parts, replicas in rows])
    elif rows:
        write_table(("NAME", "PARTITIONS", "REPLICAS"), rows)
    else:
        note("no topics; `cairn topic create NAME` makes one")
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.topic_description import describe, write_description

    with connect(arguments) as client:
        described = [describe(client, name, all_configs=arguments.all) for name in arguments.names]
    if arguments.json:
        write_json(described)
        return 0
    for number, description in enumerate(described):
        if number:
            write_line("")
        write_description(description)
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        return report_deleted(client.delete_topics(arguments.names))


def run_alter(arguments: argparse.Namespace) -> int:
    from cairnmq.client.admin import TOPIC_RESOURCE, settings_as_changes

    if not arguments.configs and not arguments.removed:
        raise UsageError("nothing to change; give -c NAME=VALUE or -d NAME")
    changes = settings_as_changes(dict(arguments.configs), arguments.removed)
    with connect(arguments) as client:
        for name in arguments.names if arguments.removed else ():
            _refuse_unknown(client, name, arguments.removed)
        for name in arguments.names:
            client.incremental_alter_configs(TOPIC_RESOURCE, name, changes)
            note(f"altered {name}")
    return 0


def _refuse_unknown(client: Client, topic: str, removed: list[str]) -> None:
    """Before anything is changed: a broker takes the removal of what does not exist for done."""
    from cairnmq.client.admin import TOPIC_RESOURCE
    from cairnmq.client.errors import Refused
    from cairnmq.errors import ErrorCode

    known = {config.name for config in client.describe_configs(TOPIC_RESOURCE, topic)}
    unknown = [name for name in removed if name not in known]
    if unknown:
        message = f"there is no setting {unknown[0]!r}; `cairn topic describe -a {topic}` shows all"
        raise Refused(ErrorCode.INVALID_CONFIG, f"topic {topic}", message)


def run_add_partitions(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        total = len(client.topic(arguments.name).partitions) + arguments.num
        client.create_partitions(arguments.name, total)
    note(f"{arguments.name} has {total} partitions now")
    return 0


def run_trim(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        known = [partition.index for partition in client.topic(arguments.name).partitions]
        bounds = find_bounds(client, arguments.name, flattened(arguments.partition) or known, arguments.offset)
        starts = client.delete_records(arguments.name, {i: place(arguments.offset, b) for i, b in bounds.items()})
    rows = [(i, bounds[i].start, start, bounds[i].end) for i, start in sorted(starts.items())]
    if arguments.json:
        write_json([{"partition": i, "old_start": old, "start": new, "end": end} for i, old, new, end in rows])
    else:
        write_table(("PARTITION", "OLD-START", "START", "END"), rows)
    return 0


def run_shrink(arguments: argparse.Namespace) -> int:
    raise UsageError("`cairn topic shrink` comes with a later release")
