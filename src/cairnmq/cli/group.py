"""`cairn group`: list, describe, reset, delete, offsets delete."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cairnmq.cli.arguments import add_connection, add_json, completes, connect, examples, one_of, partitions, utf8
from cairnmq.cli.live import add_watch, watched
from cairnmq.cli.offset_spec import AT, END, START, TIME, Bounds, OffsetSpec, find_bounds, parse_time, place
from cairnmq.cli.terminal import UsageError, error, note, report_deleted, warn, write_json, write_line, write_table
from cairnmq.cli.topic_choice import natural_order
from cairnmq.groups.messages import State

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.types import TopicPartition

STATES = tuple(state.value for state in State)
_SHIFT = "shift"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows consumer groups, and sets or deletes their offsets."
    examples(parser, "cairn group list", "cairn group describe billing", "cairn group reset billing --to-earliest")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = _add_list(actions)
    describe = actions.add_parser(
        "describe",
        help="state, members, offsets and lag of groups",
        description="Shows state, members, offsets and lag of groups.",
    )
    completes("groups", describe.add_argument("groups", nargs="+", type=utf8, metavar="GROUP"))
    add_watch(describe)
    add_json(describe)
    examples(describe, "cairn group describe billing", "cairn group describe billing --watch 5")
    describe.set_defaults(run=watched(run_describe))

    reset = actions.add_parser(
        "reset",
        help="set the offsets of a group that has no members",
        description="Sets the offsets of a group that has no members.",
    )
    completes("groups", reset.add_argument("group", type=utf8, metavar="GROUP"))
    _add_topics(reset, "repeatable (default: all topics with offsets of the group)")
    wanted = reset.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--to-earliest", action="store_const", const=OffsetSpec(START), dest="spec", help="to the first message"
    )
    wanted.add_argument(
        "--to-latest", action="store_const", const=OffsetSpec(END), dest="spec", help="to the end: only new messages"
    )
    wanted.add_argument("--to-offset", type=_at, dest="spec", metavar="N", help="to this offset")
    wanted.add_argument("--to-datetime", type=_time, dest="spec", metavar="TIME", help="ISO 8601 or ms since 1970")
    wanted.add_argument("--shift-by", type=_shift, dest="spec", metavar="N", help="forward, or back if negative")
    reset.add_argument("--dry-run", action="store_true", help="show the new offsets without setting them")
    add_json(reset)
    examples(
        reset,
        "cairn group reset billing --to-earliest --dry-run",
        "cairn group reset billing -t orders:0,2-4 --to-datetime 2026-08-01T12:00:00Z",
        "cairn group reset billing --shift-by -10",
    )
    reset.set_defaults(run=run_reset)

    delete = actions.add_parser(
        "delete",
        help="delete groups without members, with their offsets",
        description="Deletes groups without members, with their offsets.",
    )
    completes("groups", delete.add_argument("groups", nargs="+", type=utf8, metavar="GROUP"))
    examples(delete, "cairn group delete billing-test")
    delete.set_defaults(run=run_delete)

    offsets = actions.add_parser(
        "offsets", help="delete offsets of single topics", description="Deletes committed offsets of single topics."
    )
    examples(offsets, "cairn group offsets delete billing -t orders")
    of_offsets = offsets.add_subparsers(dest="offsets_action", metavar="ACTION", required=True)
    forget = of_offsets.add_parser(
        "delete",
        help="delete the offsets of topics that no member reads",
        description=(
            "Deletes a group's committed offsets in topics that none of its members reads. The group may have members."
        ),
    )
    completes("groups", forget.add_argument("group", type=utf8, metavar="GROUP"))
    _add_topics(forget, "repeatable", required=True)
    examples(
        forget, "cairn group offsets delete billing -t orders", "cairn group offsets delete billing -t orders:0 -t old"
    )
    forget.set_defaults(run=run_delete_offsets)

    for action in (listing, describe, reset, delete, forget):
        add_connection(action)


def _add_topics(parser: argparse.ArgumentParser, more: str, *, required: bool = False) -> None:
    completes(
        "topics",
        parser.add_argument(
            "-t",
            "--topic",
            dest="topics",
            action="append",
            type=_topic,
            default=[],
            required=required,
            metavar="TOPIC[:PARTITIONS]",
            help=f"orders, or orders:0,2-4; {more}",
        ),
    )


def _topic(text: str) -> tuple[str, list[int] | None]:
    topic, colon, indexes = utf8(text).partition(":")
    if not topic:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC or TOPIC:PARTITIONS")
    return topic, partitions(indexes) if colon else None


def _at(text: str) -> OffsetSpec:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset (0, 1, 2, ...)")
    return OffsetSpec(AT, int(text))


def _time(text: str) -> OffsetSpec:
    return OffsetSpec(TIME, parse_time(text))


def _shift(text: str) -> OffsetSpec:
    try:
        return OffsetSpec(_SHIFT, int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number like 10 or -10") from None


def _add_list(actions: Any) -> argparse.ArgumentParser:
    listing: argparse.ArgumentParser = actions.add_parser(
        "list", help="list groups", description="Lists consumer groups."
    )
    listing.add_argument(
        "--state",
        action="append",
        type=one_of(STATES, "state"),
        default=[],
        metavar="STATE",
        help=f"only groups in this state: {', '.join(STATES)}; repeatable",
    )
    listing.add_argument(
        "--type", action="append", type=utf8, default=[], metavar="TYPE", help="only groups of this type; repeatable"
    )
    add_json(listing)
    examples(listing, "cairn group list", "cairn group list --state Stable --json")
    listing.set_defaults(run=run_list)
    return listing


def run_list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        groups = client.list_groups(arguments.state, arguments.type)
    groups.sort(key=lambda one: natural_order(one.group))
    if arguments.json:
        write_json(groups)
    elif groups:
        rows = [(one.group, one.state or "-", one.type or "-", one.protocol_type or "-") for one in groups]
        write_table(("GROUP", "STATE", "TYPE", "PROTOCOL"), rows)
    else:
        note("no such groups" if arguments.state or arguments.type else "no groups")
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.group_description import describe, write_description

    with connect(arguments) as client:
        described = [describe(client, group) for group in arguments.groups]
    if arguments.json:
        write_json(described)
        return 0
    for number, description in enumerate(described):
        if number:
            write_line("")
        write_description(description)
    return 0


def run_reset(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        _refuse_members(client, arguments.group)
        committed = client.offset_fetch(arguments.group)
        wanted = _wanted(client, arguments.topics, committed)
        if not wanted:
            raise UsageError(f"group {arguments.group} has no offsets; name topics with -t TOPIC")
        offsets = _offsets(client, arguments.spec, wanted, committed)
        if not arguments.dry_run:
            client.offset_commit(arguments.group, offsets)
    rows = [(place.topic, place.partition, committed.get(place), new) for place, new in offsets.items()]
    if arguments.json:
        write_json([{"topic": t, "partition": p, "old_offset": old, "new_offset": new} for t, p, old, new in rows])
    else:
        shown = [(t, p, "-" if old is None else old, new) for t, p, old, new in rows]
        write_table(("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"), shown)
    note("nothing was changed (--dry-run)" if arguments.dry_run else f"reset {arguments.group}")
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        return report_deleted(client.delete_groups(arguments.groups))


def run_delete_offsets(arguments: argparse.Namespace) -> int:
    from cairnmq.types import TopicPartition

    with connect(arguments) as client:
        committed = client.offset_fetch(arguments.group)
        wanted: list[TopicPartition] = []
        for topic, indexes in arguments.topics:
            if indexes is None:
                wanted += [place for place in committed if place.topic == topic]
            else:
                wanted += [TopicPartition(topic, index) for index in indexes]
        missing = {place for place in wanted if place not in committed}
        missing |= {topic for topic, indexes in arguments.topics if not any(p.topic == topic for p in wanted)}
        for each in sorted(map(str, missing)):
            error(f"group {arguments.group} has no offset in {each}; `cairn group describe` shows what it has")
        if missing:
            return 1
        outcomes = client.offset_delete(arguments.group, list(dict.fromkeys(wanted)))
    return report_deleted({f"the offset in {place}": refused for place, refused in outcomes.items()})


def _refuse_members(client: Client, group: str) -> None:
    """Before anything is shown: the broker would refuse it too, but not for --dry-run."""
    from cairnmq.client.errors import Refused
    from cairnmq.client.groups import EMPTY
    from cairnmq.errors import ErrorCode

    try:
        state = client.describe_group(group).state
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # the reset makes it
    if state != EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {group}")


def _wanted(
    client: Client, topics: list[tuple[str, list[int] | None]], committed: dict[TopicPartition, int]
) -> dict[str, list[int]]:
    """Topic -> partitions to set."""
    found: dict[str, set[int]] = {}
    for name, indexes in topics:
        known = client.topic(name)
        for index in [partition.index for partition in known.partitions] if indexes is None else indexes:
            found.setdefault(name, set()).add(known.partition(index).index)
    if not topics:
        for place in committed:
            found.setdefault(place.topic, set()).add(place.partition)
    return {name: sorted(indexes) for name, indexes in sorted(found.items())}


def _offsets(
    client: Client, spec: OffsetSpec, wanted: dict[str, list[int]], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """What to set; always an offset that the partition can answer."""
    from cairnmq.types import TopicPartition

    found: dict[TopicPartition, int] = {}
    for name, indexes in wanted.items():
        for index, bounds in sorted(find_bounds(client, name, indexes, spec).items()):
            at = TopicPartition(name, index)
            found[at] = _new_offset(spec, bounds, at, committed.get(at))
    return found


def _new_offset(spec: OffsetSpec, bounds: Bounds, at: TopicPartition, old: int | None) -> int:
    if spec.kind == _SHIFT:
        if old is None:
            raise UsageError(f"{at.topic}-{at.partition} has no committed offset to shift")
        spec = OffsetSpec(AT, old + spec.value)
    offset = place(spec, bounds)
    if spec.kind == AT and offset != spec.value:
        warn(f"{at.topic}-{at.partition} holds {bounds.start} to {bounds.end}: {spec.value} becomes {offset}")
    return offset
