"""Plans for consumer groups: list, describe, delete. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cairnmq.client.errors import Refused, Unsupported
from cairnmq.client.session import Ask, Plan, Session
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.codec import Malformed, decode
from cairnmq.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

DEAD, EMPTY, CONSUMER, CLASSIC = "Dead", "Empty", "consumer", "classic"


class ListedGroup(Struct, frozen=True):
    """A group in a list; a broker of an old version leaves the last two empty."""

    group: str
    protocol_type: str
    state: str
    type: str


class GroupMember(Struct, frozen=True):
    """`partitions` are what a consumer was given; empty for other kinds of members."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(Struct, frozen=True):
    """`protocol` is the assignor that members of the classic protocol agreed on, or that the server uses for those of
    the consumer protocol; `type` says which of the two it is."""

    group: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    type: str = CLASSIC


def list_groups(session: Session, states: Iterable[str] = (), types: Iterable[str] = ()) -> Plan[list[ListedGroup]]:
    """The groups of every broker, by name; `states` and `types` narrow it down."""
    wanted_states, wanted_types = list(states), list(types)

    def attempt() -> Plan[list[ListedGroup]]:
        yield from session.metadata([])
        request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
        min_version = 5 if wanted_types else 4 if wanted_states else 0
        asks = [Ask(node, request, min_version) for node in session.nodes]
        answers = yield from session.ask_all(asks, ListGroupsResponse)
        found = []
        for answer in answers:
            if answer.error_code:
                raise Refused(answer.error_code, "groups")
            found += [ListedGroup(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]
        return sorted(found, key=lambda listed: listed.group)

    return (yield from session.retrying(attempt))


def describe_group(session: Session, group: str) -> Plan[GroupDescription]:
    """Refused with GROUP_ID_NOT_FOUND if there is none; older brokers call such a group dead."""

    def attempt() -> Plan[GroupDescription]:
        node = yield from session.coordinator(group)
        answer = yield from session.ask(node, DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
        (found,) = answer.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
            return (yield from _describe_consumers(session, node, group))
        if found.error_code:
            raise Refused(found.error_code, f"group {group}")
        consumers = found.protocol_type == CONSUMER
        members = tuple(
            GroupMember(
                row.member_id,
                row.group_instance_id,
                row.client_id,
                row.client_host,
                _partitions(row.member_assignment) if consumers else (),
            )
            for row in found.members
        )
        return GroupDescription(group, node, found.group_state, found.protocol_type, found.protocol_data, members)

    return (yield from session.retrying(attempt))


def _describe_consumers(session: Session, node: int, group: str) -> Plan[GroupDescription]:
    """A group of the consumer protocol, which has a request of its own; older brokers do not know it."""
    try:
        answer = yield from session.ask(
            node, ConsumerGroupDescribeRequest(group_ids=[group]), ConsumerGroupDescribeResponse
        )
    except Unsupported:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}") from None
    (found,) = answer.groups
    if found.error_code:
        raise Refused(found.error_code, f"group {group}")
    members = tuple(
        GroupMember(
            row.member_id,
            row.instance_id,
            row.client_id,
            row.client_host,
            tuple(
                TopicPartition(part.topic_name, index)
                for part in row.assignment.topic_partitions
                for index in part.partitions
            ),
        )
        for row in found.members
    )
    return GroupDescription(group, node, found.group_state, CONSUMER, found.assignor_name, members, CONSUMER)


def delete_groups(session: Session, groups: Sequence[str]) -> Plan[dict[str, Refused | None]]:
    """Deletes each group with its offsets or says why not; one refusal does not stop the others."""
    results: dict[str, Refused | None] = {}
    for group in dict.fromkeys(groups):
        results[group] = yield from _delete(session, group)
    return results


def _delete(session: Session, group: str) -> Plan[Refused | None]:
    def attempt() -> Plan[None]:
        node = yield from session.coordinator(group)
        answer = yield from session.ask(node, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        for row in answer.results:
            if row.error_code:
                raise Refused(row.error_code, f"group {group}")

    try:
        yield from session.retrying(attempt)
    except Refused as refused:
        return refused
    return None


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a consumer's assignment names; empty if it cannot be read."""
    try:
        # Every version begins with the fields of version 0.
        message, _ = decode(ConsumerProtocolAssignment, 0, assignment, 2)
    except Malformed:
        return ()
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in message.assigned_partitions
        for partition in topic.partitions
    )
