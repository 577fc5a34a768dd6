"""A topic as `cairn topic describe` shows it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.cli.offset_spec import find_bounds
from cairnmq.cli.terminal import write_line, write_table
from cairnmq.client.admin import TOPIC_RESOURCE, TOPIC_SOURCE

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client


class PartitionRow(Struct, frozen=True):
    partition: int
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int
    end: int


class Description(Struct, frozen=True):
    name: str
    id: str
    internal: bool
    configs: dict[str, str | None]
    partitions: list[PartitionRow]


def describe(client: Client, name: str, *, all_configs: bool) -> Description:
    topic = client.topic(name)
    configs = client.describe_configs(TOPIC_RESOURCE, name)
    shown = {c.name: None if c.sensitive else c.value for c in configs if all_configs or c.source == TOPIC_SOURCE}
    bounds = find_bounds(client, name, [p.index for p in topic.partitions])
    rows = [
        PartitionRow(p.index, p.leader, p.leader_epoch, p.replicas, p.isr, bounds[p.index].start, bounds[p.index].end)
        for p in topic.partitions
    ]
    topic_id = base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
    return Description(name, topic_id, topic.internal, shown, rows)


def write_description(topic: Description) -> None:
    write_line(f"topic       {topic.name}")
    write_line(f"id          {topic.id}")
    write_line(f"partitions  {len(topic.partitions)}")
    write_line(f"messages    {sum(row.end - row.start for row in topic.partitions)}")
    for name, value in sorted(topic.configs.items()):
        write_line(f"config      {name}={'(hidden)' if value is None else value}")
    write_line("")
    headings = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END")
    rows = [
        (row.partition, row.leader, row.epoch, _numbers(row.replicas), _numbers(row.isr), row.start, row.end)
        for row in topic.partitions
    ]
    write_table(headings, rows)


def _numbers(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
