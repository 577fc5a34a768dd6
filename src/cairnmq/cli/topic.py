"""`cairn topic`: create, list, describe, delete, alter, add-partitions, trim."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import (
    add_connection,
    add_json,
    add_topics,
    completes,
    connect,
    examples,
    flattened,
    partition_count,
    partitions,
    replica_count,
    setting,
    utf8,
)
from cairnmq.cli.live import add_watch, watched
from cairnmq.cli.offset_spec import FORMS, Bounds, OffsetSpec, find_bounds, parse_offset, place, stop
from cairnmq.cli.terminal import (
    UsageError,
    error,
    note,
    or_dash,
    report_deleted,
    size_text,
    write_json,
    write_line,
    write_table,
)
from cairnmq.cli.topic_choice import HELP, natural_order, parse_choice

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.topic_sizes import TopicSize

SORTS: dict[str, Callable[[TopicSize], int | None]] = {
    "name": lambda topic: 0,
    "partitions": lambda topic: topic.partitions,
    "messages": lambda topic: topic.messages,
    "size": lambda topic: topic.bytes,
}
_LISTED = ("name", "partitions", "replicas", "messages", "bytes")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Creates, shows, changes and deletes topics."
    examples(parser, "cairn topic create orders -p 6", "cairn topic list", "cairn topic describe orders")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics", description="Creates topics.")
    create.add_argument("names", nargs="+", type=utf8, metavar="TOPIC")
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
        "-c",
        "--config",
        dest="configs",
        action="append",
        type=setting,
        default=[],
        metavar="k=v",
        help="setting of the topic; repeatable",
    )
    create.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic already exists")
    examples(
        create,
        "cairn topic create orders -p 6",
        "cairn topic create users -c cleanup.policy=compact",
        "cairn topic create orders clicks --if-not-exists",
    )
    create.set_defaults(run=run_create)

    listing = actions.add_parser(
        "list",
        help="list topics with their messages and size",
        description="Lists topics. MESSAGES counts offsets from the first to the last, so it is too high where "
        "compaction or transactions leave gaps. SIZE is the space on disk.",
    )
    completes(
        "topics", listing.add_argument("choices", nargs="*", type=parse_choice, metavar="TOPIC", help=f"only: {HELP}")
    )
    listing.add_argument("--internal", action="store_true", help="include internal topics")
    listing.add_argument(
        "--sort", choices=SORTS, default="name", metavar="BY", help=f"{', '.join(SORTS)}; numbers: largest first"
    )
    listing.add_argument("-q", "--names", action="store_true", help="only names, one per line")
    add_watch(listing)
    add_json(listing)
    examples(listing, "cairn topic list", "cairn topic list 'orders-*' --sort size", "cairn topic list --watch")
    listing.set_defaults(run=watched(run_list))

    describe = actions.add_parser(
        "describe",
        help="partitions, offsets and settings of topics",
        description="Shows partitions, offsets and settings of topics.",
    )
    add_topics(describe)
    describe.add_argument(
        "-a", "--all", action="store_true", help="include settings that are not set on the topic itself"
    )
    add_json(describe)
    examples(describe, "cairn topic describe orders", "cairn topic describe orders --all --json")
    describe.set_defaults(run=run_describe)

    delete = actions.add_parser(
        "delete", help="delete topics with all their messages", description="Deletes topics with all their messages."
    )
    add_topics(delete)
    examples(delete, "cairn topic delete orders-test")
    delete.set_defaults(run=run_delete)

    alter = actions.add_parser("alter", help="change settings of topics", description="Changes settings of topics.")
    add_topics(alter)
    alter.add_argument(
        "-c",
        "--config",
        dest="configs",
        action="append",
        type=setting,
        default=[],
        metavar="k=v",
        help="set this setting; repeatable",
    )
    alter.add_argument(
        "-d",
        "--delete-config",
        dest="removed",
        action="append",
        type=utf8,
        default=[],
        metavar="k",
        help="reset this setting to its default; repeatable",
    )
    examples(alter, "cairn topic alter orders -c retention.ms=86400000", "cairn topic alter orders -d retention.ms")
    alter.set_defaults(run=run_alter)

    add = actions.add_parser(
        "add-partitions",
        help="add partitions to a topic",
        description="Adds partitions to a topic. Keys may then belong to other partitions than before.",
    )
    completes("topics", add.add_argument("name", type=utf8, metavar="TOPIC"))
    add.add_argument("-n", "--num", type=partition_count, required=True, metavar="N", help="how many to add")
    examples(add, "cairn topic add-partitions orders -n 2")
    add.set_defaults(run=run_add_partitions)

    trim = actions.add_parser(
        "trim",
        help="delete messages from the start of partitions",
        description="Deletes messages from the start of partitions.",
    )
    completes("topics", trim.add_argument("name", type=utf8, metavar="TOPIC"))
    trim.add_argument(
        "-o", "--offset", type=parse_offset, required=True, metavar="OFFSET", help=f"first offset to keep: {FORMS}"
    )
    trim.add_argument(
        "-p", "--partition", action="append", type=partitions, metavar="P", help="3 or 0,2,5-7 (default: all)"
    )
    add_json(trim)
    examples(trim, "cairn topic trim orders -o @2026-08-01", "cairn topic trim orders -o -1000 -p 0")
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
                note(f"{name} already exists")
            else:
                error(str(made))
                failed = True
    return 1 if failed else 0


def run_list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        if arguments.names:
            known = client.metadata(None).topics.values()
            for name in sorted((t.name for t in known if _listed(arguments, t.name, t.internal)), key=natural_order):
                write_line(name)
            return 0
        topics = [topic for topic in client.topic_sizes() if _listed(arguments, topic.name, topic.internal)]
    topics.sort(key=lambda topic: natural_order(topic.name))
    if arguments.sort != "name":
        topics.sort(key=lambda topic: SORTS[arguments.sort](topic) or 0, reverse=True)
    if arguments.json:
        write_json([{name: getattr(topic, name) for name in _LISTED} for topic in topics])
    elif topics:
        rows = [(t.name, t.partitions, t.replicas, or_dash(t.messages), size_text(t.bytes)) for t in topics]
        write_table(("NAME", "PARTITIONS", "REPLICAS", "MESSAGES", "SIZE"), rows)
    else:
        note("no topic matches" if arguments.choices else "no topics; `cairn topic create NAME` makes one")
    return 0


def _listed(arguments: argparse.Namespace, name: str, internal: bool) -> bool:
    if internal and not arguments.internal:
        return False
    return not arguments.choices or any(choice.matches(name) for choice in arguments.choices)


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
        _refuse_beyond_end(arguments.name, arguments.offset, bounds)
        starts = client.delete_records(arguments.name, {i: place(arguments.offset, b) for i, b in bounds.items()})
    rows = [(i, bounds[i].start, start, bounds[i].end) for i, start in sorted(starts.items())]
    if arguments.json:
        write_json([{"partition": i, "old_start": old, "start": new, "end": end} for i, old, new, end in rows])
    else:
        write_table(("PARTITION", "OLD-START", "START", "END"), rows)
    return 0


def _refuse_beyond_end(topic: str, offset: OffsetSpec, bounds: Mapping[int, Bounds]) -> None:
    """One digit too many would delete everything."""
    for partition, found in sorted(bounds.items()):
        wanted = stop(offset, found)
        if wanted > found.end:
            raise UsageError(
                f"{topic}-{partition} ends at offset {found.end}, before {wanted}; -o end deletes all its messages. "
                "Nothing was deleted"
            )


def run_shrink(arguments: argparse.Namespace) -> int:
    raise UsageError("`cairn topic shrink` comes with a later release")
