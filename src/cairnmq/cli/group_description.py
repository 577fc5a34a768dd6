"""A group as `cairn group describe` shows it: its state, its members, and how far it is behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.cli.offset_spec import find_bounds
from cairnmq.cli.terminal import YELLOW, or_dash, paint, write_line, write_table
from cairnmq.cli.topic_choice import natural_order
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.groups import GroupMember


class OffsetRow(Struct, frozen=True):
    """One partition; `committed` and `lag` are None if the group only reads it, `member_id` if nobody does."""

    topic: str
    partition: int
    committed: int | None
    start: int
    end: int
    lag: int | None
    member_id: str | None
    client_id: str | None
    host: str | None


class Description(Struct, frozen=True):
    group: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: int
    lag: int
    offsets: list[OffsetRow]
    type: str = "classic"


def describe(client: Client, group: str) -> Description:
    found = client.describe_group(group)
    committed = client.offset_fetch(group)
    readers = {place: member for member in found.members for place in member.partitions}
    rows = _rows(client, committed, readers)
    lag = sum(row.lag or 0 for row in rows)
    return Description(
        group,
        found.coordinator,
        found.state,
        found.protocol_type,
        found.protocol,
        len(found.members),
        lag,
        rows,
        found.type,
    )


def _rows(
    client: Client, committed: dict[TopicPartition, int], readers: dict[TopicPartition, GroupMember]
) -> list[OffsetRow]:
    by_topic: dict[str, set[int]] = {}
    for place in {*committed, *readers}:
        by_topic.setdefault(place.topic, set()).add(place.partition)
    known = client.metadata(by_topic).topics if by_topic else {}
    rows = []
    for topic, wanted in sorted(by_topic.items(), key=lambda item: natural_order(item[0])):
        # A member may still hold what was deleted a moment ago.
        existing = {partition.index for partition in known[topic].partitions} if topic in known else set()
        for partition, bounds in sorted(find_bounds(client, topic, sorted(wanted & existing)).items()):
            place = TopicPartition(topic, partition)
            offset, reader = committed.get(place), readers.get(place)
            rows.append(
                OffsetRow(
                    topic,
                    partition,
                    offset,
                    bounds.start,
                    bounds.end,
                    None if offset is None else max(0, bounds.end - offset),
                    None if reader is None else reader.member_id,
                    None if reader is None else reader.client_id,
                    None if reader is None else reader.host.removeprefix("/"),
                )
            )
    return rows


def write_description(group: Description) -> None:
    write_line(f"group        {group.group}")
    write_line(f"state        {group.state}")
    write_line(f"coordinator  {group.coordinator}")
    write_line(f"type         {group.type}")
    write_line(f"protocol     {group.protocol_type or '-'}{f', {group.protocol}' if group.protocol else ''}")
    write_line(f"members      {group.members}")
    lag = str(group.lag)
    write_line(f"lag          {paint(lag, YELLOW, sys.stdout) if group.lag else lag}")
    if not group.offsets:
        return
    write_line("")
    headings = ("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST")
    rows = [
        (row.topic, row.partition, or_dash(row.committed), row.start, row.end, or_dash(row.lag),
         row.member_id or "-", row.client_id or "-", row.host or "-")
        for row in group.offsets
    ]  # fmt: skip
    write_table(headings, rows)
