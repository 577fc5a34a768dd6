"""Groups as people and monitoring see them: states, members, lag. Bounded, however many groups and partitions exist."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq.broker.http.chunked import slices
from cairnmq.broker.metrics import Exposition, Sample
from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_messages import ConsumerGroupView
from cairnmq.groups.messages import DescribedMember, State
from cairnmq.groups.offsets import Committed
from cairnmq.groups.partitions import count
from cairnmq.groups.subscription import CONSUMER, read_assignment
from cairnmq.metadata.image import Topic
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Json: TypeAlias = dict[str, Any]

GROUPS_SHOWN = 1_000
OFFSETS_SHOWN = 100  # of each group; /api/v1/groups/NAME has all
_STATES = {
    "classic": (State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE),
    "consumer": (State.EMPTY, State.ASSIGNING, State.RECONCILING, State.STABLE),
}
LAG_SERIES = 10_000  # a monitoring system pays for every one of them


async def groups(ctx: Context) -> list[Json]:
    """Every group with its lag, those furthest behind first; of each, the partitions furthest behind."""
    found = []
    for listed in list(ctx.coordinators.groups()):
        rows = await _offsets(ctx, listed.group_id)
        found.append(
            {
                "group": listed.group_id,
                "type": listed.type,
                "state": listed.state,
                "protocol": listed.protocol_type,
                "members": listed.members,
                "partitions": len(rows),
                "lag": sum(row["lag"] for row in rows),
                "offsets": _worst(rows, OFFSETS_SHOWN),
            }
        )
    found.sort(key=lambda row: (-row["lag"], row["group"]))
    return found[:GROUPS_SHOWN]


async def groups_of_topic(ctx: Context, topic: Topic) -> list[Json]:
    """Those that have committed offsets in it, with their lag there."""
    found: list[Json] = []
    for part in slices(list(ctx.coordinators.groups())):
        for listed in part:
            committed = _committed(ctx, listed.group_id).get(topic.topic_id)
            if not committed:
                continue
            lag = 0
            for rows in slices(_positions_in(ctx, topic, {index: each.offset for index, each in committed.items()})):
                lag += sum(max(0, end - offset) for _, offset, end in rows)
                await asyncio.sleep(0)
            found.append({"group": listed.group_id, "state": listed.state, "members": listed.members, "lag": lag})
        await asyncio.sleep(0)
    found.sort(key=lambda row: (-row["lag"], row["group"]))
    return found[:GROUPS_SHOWN]


async def group(ctx: Context, group_id: str) -> Json | None:
    """One group with all its partitions and members."""
    rows = await _offsets(ctx, group_id)
    coordinator = ctx.coordinators.of_group(group_id)
    if isinstance(coordinator, ErrorCode):
        return None
    consumers = coordinator.groups.describe_consumers(group_id)
    if consumers is not None:
        return _consumer_group(consumers) | {"lag": sum(row["lag"] for row in rows), "offsets": rows}
    described = coordinator.groups.describe(group_id)
    if described is None:
        return None
    return {
        "group": group_id,
        "type": "classic",
        "state": described.state,
        "protocol": described.protocol_type,
        "assignor": described.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host.removeprefix("/"),
                "partitions": _assigned(described.protocol_type, member),
            }
            for member in described.members
        ],
        "lag": sum(row["lag"] for row in rows),
        "offsets": rows,
    }


def _assigned(protocol_type: str, member: DescribedMember) -> int | None:
    """How many partitions; None if nobody but the members knows."""
    assignment = read_assignment(member.assignment) if protocol_type == CONSUMER else None
    return None if assignment is None else sum(len(row.partitions) for row in assignment.assigned_partitions)


def _consumer_group(found: ConsumerGroupView) -> Json:
    return {
        "group": found.group_id,
        "type": "consumer",
        "state": found.state,
        "protocol": "consumer",
        "assignor": found.assignor,
        "epoch": found.epoch,
        "target_epoch": found.target_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host.removeprefix("/"),
                "rack": member.rack_id,
                "protocol": "classic" if member.is_classic else "consumer",
                "epoch": member.epoch,
                "partitions": count(member.assigned),
                "target_partitions": count(member.target),
            }
            for member in found.members
        ],
    }


async def group_metrics(ctx: Context, out: Exposition) -> None:
    states: Counter[tuple[str, State]] = Counter(
        {(kind, state): 0 for kind, possible in _STATES.items() for state in possible}
    )
    states.update((listed.type, listed.state) for listed in ctx.coordinators.groups())
    out.series(
        "cairn_groups", [Sample(number, {"type": kind, "state": state}) for (kind, state), number in states.items()]
    )
    lags: list[tuple[str, TopicPartition, int]] = []
    omitted = 0
    committed = (one.coordinator.groups.offsets.groups() for one in ctx.coordinators.loaded)
    for group_id in sorted(chain.from_iterable(committed)):  # by name, so that a series does not come and go
        for part in slices(_positions(ctx, group_id)):
            room = LAG_SERIES - len(lags)
            lags += [(group_id, place, max(0, end - committed)) for place, committed, end in part[:room]]
            omitted += max(0, len(part) - room)
            await asyncio.sleep(0)
    for name, label in (("cairn_group_lag", "group"), ("kafka_consumergroup_lag", "consumergroup")):
        out.begin(name)
        for told in slices(lags):
            out.samples(
                name,
                [
                    Sample(lag, {label: group_id, "topic": place.topic, "partition": str(place.partition)})
                    for group_id, place, lag in told
                ],
            )
            await asyncio.sleep(0)
    out.value("cairn_group_lag_omitted", omitted)


async def _offsets(ctx: Context, group_id: str) -> list[Json]:
    rows: list[Json] = []
    for part in slices(_positions(ctx, group_id)):
        rows += [
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": committed,
                "end": end,
                "lag": max(0, end - committed),
            }
            for place, committed, end in part
        ]
        await asyncio.sleep(0)
    return rows


def _worst(rows: list[Json], count: int) -> list[Json]:
    """The rows furthest behind, in the order in which they were."""
    if len(rows) <= count:
        return rows
    chosen = set(nlargest(count, range(len(rows)), key=lambda number: rows[number]["lag"]))
    return [row for number, row in enumerate(rows) if number in chosen]


def _committed(ctx: Context, group_id: str) -> Mapping[bytes, Mapping[int, Committed]]:
    """By topic id and partition; none of groups that others coordinate."""
    coordinator = ctx.coordinators.of_group(group_id)
    return {} if isinstance(coordinator, ErrorCode) else coordinator.groups.offsets.topics(group_id)


def _positions(ctx: Context, group_id: str) -> Iterator[tuple[TopicPartition, int, int]]:
    """(partition, committed offset, visible end) of what a group has committed in topics that exist, and whose end is
    known."""
    for topic_id, partitions in list(_committed(ctx, group_id).items()):
        topic = ctx.catalog.image.topic_by_id(topic_id)
        if topic is not None:
            yield from _positions_in(ctx, topic, {index: each.offset for index, each in sorted(partitions.items())})


def _positions_in(ctx: Context, topic: Topic, offsets: Mapping[int, int]) -> Iterator[tuple[TopicPartition, int, int]]:
    for partition, committed in offsets.items():
        queue_id = topic.queue_id(partition)
        queue = None if queue_id is None else ctx.store.queues.get(queue_id)
        if queue is not None and not queue.cut_short:
            yield TopicPartition(topic.name, partition), committed, queue.high_watermark
